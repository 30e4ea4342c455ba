"""Texts that may become vectors, and what a vector is."""

import numpy as np
import pytest

from exo.errors import Rejected
from exo.runner.engines.vectors import unit, within_context


def row(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, dtype=np.float32)


def test_a_vector_is_of_length_one_in_four_bytes_a_number() -> None:
    assert unit(row(3, 4), 2) == np.array([0.6, 0.8], dtype="<f4").tobytes()


def test_its_beginning_is_of_length_one_too() -> None:
    assert unit(row(3, 4, 12), 2) == unit(row(3, 4), 2)


def test_large_and_small_numbers_are_no_trouble() -> None:
    assert unit(row(3e38, 3e38), 2) == unit(row(1e-30, 1e-30), 2) == unit(row(1, 1), 2)


@pytest.mark.parametrize("numbers", [(0, 0), (float("nan"), 1), (float("inf"), 1)])
def test_what_has_no_length_is_no_vector(numbers: tuple[float, ...]) -> None:
    assert unit(row(*numbers), 2) is None


def test_texts_are_taken_up_to_the_context() -> None:
    assert within_context([[1, 2, 3], [4]], 3, truncate=False) == [[1, 2, 3], [4]]
    assert within_context([[1, 2, 3, 4], [4]], 3, truncate=True) == [[1, 2, 3], [4]]


def test_what_ends_every_text_stays_at_the_end_of_one_that_is_cut() -> None:
    cut = within_context([[0, 1, 2, 3, 9], [0, 9], [0, 1, 2, 3]], 3, truncate=True, ending=[9])
    assert cut == [[0, 1, 9], [0, 9], [0, 1, 2]]
    assert within_context([[1, 2, 9]], 1, truncate=True, ending=[9]) == [[1]]


def test_a_longer_one_is_named_with_both_numbers() -> None:
    with pytest.raises(Rejected, match=r"input\[1\].* 3 tokens.* 4") as refusal:
        within_context([[1], [1, 2, 3, 4]], 3, truncate=False)
    assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "input[1]")


def test_one_without_tokens_is_named() -> None:
    with pytest.raises(Rejected) as refusal:
        within_context([[1], []], 3, truncate=True)
    assert (refusal.value.code, refusal.value.param) == ("empty_prompt", "input[1]")
