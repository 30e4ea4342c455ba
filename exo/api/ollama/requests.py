"""The bodies of Ollama's requests for an answer. What would be ignored is refused by name."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.param_names import Names
from exo.api.bodies.strict import LIST_MOST, AsksModel, Unsupported
from exo.api.ollama.durations import Duration
from exo.api.ollama.messages import Images, Message, conversation
from exo.api.ollama.options import Options
from exo.api.openai.tools import Tools
from exo.domain.constraint import Constraint, JsonObject, JsonSchema
from exo.domain.logprobs import TOP_LOGPROBS_MOST
from exo.domain.messages.requests import ChatMessage, GenerationRequest, ReasoningEffort
from exo.domain.sampling import SamplingParams

FORMAT = "format"
CHAT_NAMES: Names = {"enable_thinking": "think", "reasoning_effort": "think"}
PROMPT_NAMES: Names = {**CHAT_NAMES, "messages": "prompt"}


def _not_cut(value: object) -> object:
    if value is True:
        raise PydanticCustomError("not_supported", "a prompt or an answer that is too long is never cut in silence")
    return value


NotCut = Annotated[Literal[False] | None, BeforeValidator(_not_cut)]
"""Whether what is too long may be cut. Ollama does, unless told otherwise."""


class AnswerRequest(AsksModel):
    """What chats and prompts have in common. Null stands for the default throughout."""

    stream: bool | None = None
    """Unless it is false."""
    format: Literal["", "json"] | dict[str, JsonValue] | None = None
    options: Options | None = None
    keep_alive: Duration = None
    think: Literal[True, False, "low", "medium", "high", "max"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None
    truncate: NotCut = None
    shift: NotCut = None

    @field_validator("top_logprobs")
    @classmethod
    def _telling_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and info.data.get("logprobs") is not True:
            raise PydanticCustomError("no_logprobs", "this goes with 'logprobs', which is not true")
        return value

    kind: ClassVar[Literal["chat", "generate"]]
    names: ClassVar[Names]
    """Of parameters, as in `exo.api.bodies.param_names`."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is wanted as it comes."""
        return self.stream is not False

    @property
    def enable_thinking(self) -> bool | None:
        """Whether the model is to think; any level is a yes."""
        return None if self.think is None else self.think is not False

    @property
    def reasoning_effort(self) -> ReasoningEffort | None:
        """How much it is to think."""
        return self.think if isinstance(self.think, str) else None

    def sampling(self) -> SamplingParams:
        """How tokens are chosen."""
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return (self.options or Options()).sampling(logprobs, self._constraint())

    def _constraint(self) -> Constraint | None:
        match self.format:
            case None | "":
                return None
            case "json":
                return JsonObject(param=FORMAT)
            case schema:
                return JsonSchema(text=to_json(schema).decode(), param=FORMAT)


class ChatRequest(AnswerRequest):
    """The body of `POST /ollama/api/chat`."""

    kind = "chat"
    names = CHAT_NAMES

    messages: Annotated[list[Message], Field(max_length=LIST_MOST)] | None = None
    """None: the model is only to be loaded, or unloaded."""
    tools: Tools | None = None

    @property
    def asks_for_answer(self) -> bool:
        """Whether there is something to answer."""
        return bool(self.messages)

    def to_generation(self) -> GenerationRequest:
        """The payload for the engine."""
        return GenerationRequest(
            messages=conversation(self.messages or ()),
            params=self.sampling(),
            tools=tuple(tool.to_domain() for tool in self.tools or ()),
            enable_thinking=self.enable_thinking,
            reasoning_effort=self.reasoning_effort,
        )


class GenerateRequest(AnswerRequest):
    """The body of `POST /ollama/api/generate`."""

    kind = "generate"
    names = PROMPT_NAMES

    raw: bool | None = None
    prompt: str | None = None
    """Empty: the model is only to be loaded, or unloaded."""
    system: str | None = None
    images: Images = None
    suffix: Unsupported = None
    template: Unsupported = None
    context: Unsupported = None
    width: Unsupported = None
    height: Unsupported = None
    steps: Unsupported = None

    @field_validator("system")
    @classmethod
    def _not_beside_raw(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("raw"):
            raise PydanticCustomError("raw", "'raw' takes the prompt as it stands: there is no place for this in it")
        return value

    @field_validator("raw")
    @classmethod
    def _not_beside_think(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("think") is not None:
            raise PydanticCustomError("raw", "a prompt as it stands says itself whether to think: leave 'think' out")
        return value

    @property
    def asks_for_answer(self) -> bool:
        """Whether there is something to answer."""
        return bool(self.prompt)

    def to_generation(self) -> GenerationRequest:
        """The payload for the engine: a prompt as it stands, or a conversation of one question."""
        if self.raw:
            return GenerationRequest(prompt=self.prompt, params=self.sampling())
        system = [ChatMessage(role="system", content=self.system)] if self.system else []
        return GenerationRequest(
            messages=(*system, ChatMessage(role="user", content=self.prompt or "")),
            params=self.sampling(),
            enable_thinking=self.enable_thinking,
            reasoning_effort=self.reasoning_effort,
        )
