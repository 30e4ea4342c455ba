"""What models of each family wrote comes out right, however it is cut into tokens."""

from typing import Any

import pytest

from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece
from tests.vector_cases import Vector, cuts, pieces, problem, vectors
from tests.vector_runs import outcome, run


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["id"])
def test_a11_a_vector_comes_out_right_under_every_cut(vector: Vector) -> None:
    outcomes = [outcome(run(vector, tokens)) for tokens in cuts(vector)]
    assert problem(vector, outcomes[0]) is None
    assert all(one == outcomes[0] for one in outcomes)


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["id"])
def test_nothing_leaks_that_is_not_part_of_the_outcome(vector: Vector) -> None:
    expected: dict[str, Any] = vector["expect"]
    is_expected = any("�" in one.get("content", "") for one in (expected, *vector.get("accept", [])))
    chunks = run(vector, pieces(vector))
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextPiece | ReasoningPiece)]
    assert all(texts)
    assert is_expected or not any("�" in text for text in texts)


@pytest.mark.parametrize(
    "vector", [one for one in vectors() if "reasoning_tokens" in one["expect"]], ids=lambda vector: vector["id"]
)
def test_the_tokens_of_the_reasoning_are_counted(vector: Vector) -> None:
    end = run(vector, pieces(vector))[-1]
    assert isinstance(end, EndPiece)
    assert end.usage.reasoning_tokens == vector["expect"]["reasoning_tokens"]
