"""What errors call the parameters of an endpoint."""

import pytest

from exo.api.anthropic.messages import NAMES as ANTHROPIC
from exo.api.bodies.param_names import AS_IN_CHAT, Names, named
from exo.api.openai.completions import NAMES as COMPLETIONS
from exo.api.openai.responses.creating import NAMES as RESPONSES
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Timings, Usage


def failed(param: str | None, code: str = "invalid_request", error: str = "no") -> EndPiece:
    return EndPiece(finish_reason="error", usage=Usage(), timings=Timings(), code=code, error=error, param=param)


@pytest.mark.parametrize(
    ("names", "param", "own"),
    [
        (AS_IN_CHAT, "enable_thinking", "enable_thinking"),
        (ANTHROPIC, "enable_thinking", "thinking"),
        (ANTHROPIC, "reasoning_effort", "output_config.effort"),
        (ANTHROPIC, "tools[1].function.parameters", "tools[1].input_schema"),
        (ANTHROPIC, "messages", "messages"),
        (RESPONSES, "enable_thinking", "reasoning.effort"),
        (RESPONSES, "reasoning_effort", "reasoning.effort"),
        (RESPONSES, "tools[0].function.parameters", "tools[0].parameters"),
        (RESPONSES, "messages", "input"),
        (COMPLETIONS, "messages", "prompt"),
        (COMPLETIONS, None, None),
    ],
)
def test_an_error_names_its_parameter_as_the_endpoint_does(names: Names, param: str | None, own: str | None) -> None:
    assert named(failed(param), names).param == own


def test_a_code_stands_for_the_parameter_that_it_is_about() -> None:
    assert named(failed(None, "context_length_exceeded"), RESPONSES).param == "input"


def test_a_text_that_begins_with_the_parameter_begins_with_the_endpoints() -> None:
    param = "tools[0].function.parameters"
    assert named(failed(param, error=f"{param}: no schema"), ANTHROPIC).error == "tools[0].input_schema: no schema"
    assert named(failed("messages", error="the messages: no"), RESPONSES).error == "the messages: no"
