"""The body of `POST /v1/responses`. What would be ignored is refused by name."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import AsksModel, Unsupported, check_streaming
from exo.api.bodies.tool_names import check_demanded
from exo.api.openai.responses.items import Items, messages_of
from exo.api.openai.responses.options import (
    ChosenFunction,
    ReasoningOptions,
    StreamOptions,
    TextOptions,
    ToolChoice,
    Tools,
)
from exo.domain.logprobs import TOP_LOGPROBS_MOST
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.sampling import TEMPERATURE_MOST, TOP_P_LEAST, Count, SamplingParams

LOGPROBS = "message.output_text.logprobs"


def _never_cut(value: object) -> object:
    if value == "auto":
        raise PydanticCustomError("not_supported", "a prompt that is too long is refused, never cut")
    return value


def _told(value: object) -> object:
    if isinstance(value, str) and value != LOGPROBS:
        raise PydanticCustomError("not_supported", "'{name}' is not supported; '" + LOGPROBS + "' is", {"name": value})
    return value


class ResponseRequest(AsksModel):
    """A request. Null stands for the default throughout."""

    input: Items
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    background: bool | None = None

    temperature: Annotated[float, Field(ge=0, le=TEMPERATURE_MOST)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Count | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[Annotated[Literal["message.output_text.logprobs"], BeforeValidator(_told)]] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None
    truncation: Annotated[Literal["disabled"], BeforeValidator(_never_cut)] | None = None

    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    conversation: Unsupported = None
    prompt: Unsupported = None
    max_tool_calls: Unsupported = None
    context_management: Unsupported = None
    service_tier: Unsupported = None

    @field_validator("stream_options")
    @classmethod
    def _streaming(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None:
            check_streaming(info)
        return value

    @field_validator("background")
    @classmethod
    def _stored(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("store") is False:
            raise PydanticCustomError("not_stored", "nobody could fetch the answer where 'store' is false")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _telling_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not info.data.get("include"):
            raise PydanticCustomError("no_logprobs", "this goes with '" + LOGPROBS + "' in 'include'")
        return value

    @field_validator("tool_choice")
    @classmethod
    def _choosable(cls, value: ToolChoice | None, info: ValidationInfo) -> ToolChoice | None:
        if value in (None, "none", "auto"):
            return value
        tools: Tools = info.data.get("tools") or []
        check_demanded(value.name if isinstance(value, ChosenFunction) else None, [tool.name for tool in tools])
        text: TextOptions | None = info.data.get("text")
        if text is not None and text.format is not None and text.format.type != "text":
            raise PydanticCustomError("format_of_calls", "a call is demanded: no text of 'text.format' can come")
        return value

    @property
    def is_stored(self) -> bool:
        """Whether it can be fetched later."""
        return self.store is not False

    @property
    def tells_logprobs(self) -> bool:
        """Whether the answer's tokens come with how likely they were."""
        return bool(self.include)

    def to_domain(self, earlier: tuple[ChatMessage, ...]) -> GenerationRequest:
        """The payload for the engine; `earlier` is the conversation before it."""
        named = self.tool_choice.name if isinstance(self.tool_choice, ChosenFunction) else None
        instructions = (ChatMessage(role="system", content=self.instructions),) if self.instructions else ()
        return GenerationRequest(
            messages=(*instructions, *earlier, *messages_of(self.input)),
            params=self._params(),
            tools=tuple(tool.to_domain() for tool in self.tools or ()),
            tool_choice="required" if isinstance(self.tool_choice, ChosenFunction) else self.tool_choice or "auto",
            tool_name=named,
            # A tool that is asked for by its name is called once.
            parallel_tool_calls=self.parallel_tool_calls is not False and named is None,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
        )

    def _params(self) -> SamplingParams:
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else max(self.top_p, TOP_P_LEAST),
            max_tokens=self.max_output_tokens,
            logprobs=(self.top_logprobs or 0) if self.tells_logprobs else None,
            constraint=self.text.format.constraint() if self.text and self.text.format else None,
        )
