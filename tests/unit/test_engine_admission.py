import pytest

from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.admission import UNLIMITED_RESERVE, completion_limit, limit_asked_for, reserved_tokens


def test_a_request_without_a_limit_may_fill_the_context() -> None:
    assert completion_limit(100, None, 8192) == 8092


def test_a_request_may_fill_the_context_to_the_last_token() -> None:
    assert completion_limit(8000, 192, 8192) == 192


@pytest.mark.parametrize(("prompt", "max_tokens"), [(8192, None), (8000, 193), (9000, 1)])
def test_a_request_over_the_context_is_refused(prompt: int, max_tokens: int | None) -> None:
    with pytest.raises(Rejected, match="8192") as refused:
        completion_limit(prompt, max_tokens, 8192)
    assert refused.value.code == "context_length_exceeded"
    assert str(prompt) in refused.value.reason
    assert ("prompt is too long" in refused.value.reason) == (prompt >= 8192)


@pytest.mark.parametrize(
    ("max_tokens", "stops_at_context", "asked"),
    [(200, True, None), (192, True, 192), (None, True, None), (200, False, 200)],
)
def test_a_limit_beyond_the_context_is_none_where_that_will_do(
    max_tokens: int | None, stops_at_context: bool, asked: int | None
) -> None:
    params = SamplingParams(max_tokens=max_tokens, stops_at_context=stops_at_context)
    assert limit_asked_for(params, 8000, 8192) == asked


def test_memory_is_reserved_for_what_was_asked_for_or_a_usual_answer() -> None:
    assert reserved_tokens(10, 5000, 5000) == 5010
    assert reserved_tokens(10, None, 100) == 110
    assert reserved_tokens(10, None, 100_000) == 10 + UNLIMITED_RESERVE
