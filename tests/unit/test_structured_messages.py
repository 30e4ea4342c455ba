"""What the process that tries formats is told: the same for the same form, whatever else is asked."""

from exo.domain.constraint import Regex
from exo.domain.messages.requests import ChatMessage, GenerationRequest, Tool
from exo.domain.sampling import SamplingParams
from exo.models.output_format import OutputFormat
from exo.runner.structured.messages import trial_request

FORM = OutputFormat()
PARAMS = SamplingParams(constraint=Regex(pattern="[a-z]+"))
TOOL = Tool(name="look")


def told(**fields: object) -> str:
    request = GenerationRequest.model_validate({"messages": (), "params": PARAMS, **fields})
    return trial_request(request, FORM).model_dump_json()


def test_what_has_nothing_to_do_with_the_form_is_left_out() -> None:
    message = ChatMessage(role="user", content="Hello")
    same = {
        told(),
        told(messages=(message,)),
        told(prompt="Once upon a time", echo=True),
        told(params=PARAMS.replaced({"temperature": 0.5, "max_tokens": 7})),
        told(tools=(TOOL,)),
        told(enable_thinking=True, reasoning_effort="low"),
    }
    assert len(same) == 1


def test_what_has_to_do_with_it_is_there() -> None:
    other = Regex(pattern="[0-9]+")
    demanded = {"tools": (TOOL, Tool(name="go")), "tool_choice": "required"}
    different = {
        told(),
        told(params=SamplingParams(constraint=other)),
        told(**demanded),
        told(**demanded, tool_name="go"),
        told(**demanded, parallel_tool_calls=False),
    }
    assert len(different) == 5
