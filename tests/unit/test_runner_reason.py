"""What a runner says of the error that ended it."""

import pytest

from exo.domain.sampling import SamplingParams
from exo.errors import Retryable
from exo.runner.chat import json_object
from exo.runner.main import reason_of


def test_an_error_of_ours_speaks_for_itself() -> None:
    assert reason_of(Retryable("rank 1 was lost")) == "rank 1 was lost"


def test_an_error_that_nobody_foresaw_has_its_type_text_and_place_on_one_line() -> None:
    with pytest.raises(TypeError) as caught:
        json_object(SamplingParams(), "tools")  # pyright: ignore[reportArgumentType]  the error is wanted
    reason = reason_of(caught.value)
    assert reason.startswith("TypeError: the JSON object must be str")
    assert "(runner/chat.py:" in reason
    assert reason.endswith(", json_object)")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AssertionError(), "AssertionError (outside of exo)"),
        (ValueError("two\n  lines"), "ValueError: two lines (outside of exo)"),
    ],
)
def test_an_error_from_elsewhere_says_so(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
