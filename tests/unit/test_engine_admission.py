import pytest

from exo.errors import Rejected
from exo.runner.engines.admission import UNLIMITED_RESERVE, completion_limit, reserved_tokens


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


def test_memory_is_reserved_for_what_was_asked_for_or_a_usual_answer() -> None:
    assert reserved_tokens(10, 5000, 5000) == 5010
    assert reserved_tokens(10, None, 100) == 110
    assert reserved_tokens(10, None, 100_000) == 10 + UNLIMITED_RESERVE
