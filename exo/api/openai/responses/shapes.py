"""What a response and its items look like as JSON."""

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import TypedDict

from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.requests import ReasoningEffort

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Item = dict[str, object]
"""Of the input."""


class OutputText(TypedDict):
    """What the model said."""

    type: Literal["output_text"]
    text: str
    annotations: list[object]
    logprobs: Sequence[TokenLogprobs]


class ReasoningText(TypedDict):
    """What it thought."""

    type: Literal["reasoning_text"]
    text: str


class MessageItem(TypedDict):
    """A message of the model's."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]
    status: ItemStatus


class ReasoningItem(TypedDict):
    """What it thought before. There are no summaries."""

    id: str
    type: Literal["reasoning"]
    summary: list[object]
    content: list[ReasoningText]
    status: ItemStatus


class CallItem(TypedDict):
    """A call that the client is asked to make, its arguments as a JSON object in a text."""

    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


OutputItem = MessageItem | ReasoningItem | CallItem


class InputDetails(TypedDict):
    """Of the prompt's tokens, those that were not computed anew."""

    cached_tokens: int


class OutputDetails(TypedDict):
    """Of the answer's tokens, those that gave reasoning."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(TypedDict):
    """Why there is no answer: OpenAI's code, and as the type exo's own."""

    code: str
    message: str
    type: str


class Incomplete(TypedDict):
    """Why an answer is not complete."""

    reason: str


class Reasoning(TypedDict):
    """How much it was asked to think."""

    effort: ReasoningEffort | None
    summary: None


class Text(TypedDict):
    """What the answer was asked to look like."""

    format: Mapping[str, object]


class Asked(TypedDict):
    """What a response was asked for with; what is the default is told too."""

    background: bool
    instructions: str | None
    max_output_tokens: int | None
    metadata: Mapping[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: Reasoning
    store: bool
    temperature: float
    text: Text
    tool_choice: str | Mapping[str, object]
    tools: list[dict[str, object]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None


class ResponseBody(Asked):
    """A response, at any time of its life."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Status
    error: ResponseError | None
    incomplete_details: Incomplete | None
    model: str
    output: Sequence[OutputItem]
    usage: ResponseUsage | None


class DeletedResponse(TypedDict):
    """A response that is gone."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItems(TypedDict):
    """Items of a response's input, each as it was sent, with an id and a status."""

    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
