"""What Ollama's answers look like as JSON, in one piece. `answers.py` writes them."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from exo.domain.logprobs import TokenLogprobs


class CalledFunction(TypedDict):
    """What is called, and with what."""

    index: int
    name: str
    arguments: dict[str, object]


class Call(TypedDict):
    """A call that the client is asked to make."""

    id: str
    function: CalledFunction


class Message(TypedDict):
    """What the model said."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[Call]]


class Figures(TypedDict):
    """Tokens, and times in nanoseconds; absent where no answer was asked for."""

    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]


class _Answer(Figures):
    model: str
    created_at: str
    done: Literal[True]
    done_reason: Literal["stop", "length", "load", "unload"]
    logprobs: NotRequired[list[TokenLogprobs]]


class ChatAnswer(_Answer):
    """Of `/api/chat`."""

    message: Message


class GenerateAnswer(_Answer):
    """Of `/api/generate`."""

    response: str
    thinking: NotRequired[str]
