"""The body of `POST /v1/chat/completions`, with OpenAI's names. What would be ignored is refused by name."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import LIST_MOST, AsksModel, Strict, Unsupported, check_streaming
from exo.api.openai.formats import FORMATS, FormatFields, constrains
from exo.api.openai.messages import Message
from exo.api.openai.sampling_fields import SamplingFields
from exo.api.openai.stream_fields import StreamFields
from exo.api.openai.tools import ToolFields, choice_of
from exo.domain.logprobs import TOP_LOGPROBS_MOST
from exo.domain.messages.requests import GenerationRequest, ReasoningEffort
from exo.domain.sampling import Count


class ChatTemplateKwargs(Strict):
    """Switches of chat templates, as vLLM and SGLang take them."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


def _medium(value: str) -> str:
    if value != "medium":
        raise PydanticCustomError("not_supported", "no model here has a switch for that: say in the prompt how long")
    return value


class ChatCompletionRequest(FormatFields, ToolFields, SamplingFields, StreamFields, AsksModel):
    """A chat request. Null stands for the default throughout. Formats are checked after the tools beside them: fields
    are in the order of the bases, the last one's first."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=LIST_MOST)]
    max_completion_tokens: Count | None = None
    background: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    """The longest time that is allowed."""
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None
    verbosity: Annotated[Literal["low", "medium", "high"], AfterValidator(_medium)] | None = None
    functions: Unsupported = None
    function_call: Unsupported = None
    store: Unsupported = None
    service_tier: Unsupported = None
    prompt_cache_options: Unsupported = None
    moderation: Unsupported = None
    audio: Unsupported = None
    prediction: Unsupported = None
    web_search_options: Unsupported = None

    @field_validator("max_completion_tokens")
    @classmethod
    def _same_limit(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("max_tokens") not in (None, value):
            raise PydanticCustomError("limits_differ", "'max_tokens' is given too, and it is another number")
        return value

    @field_validator("background")
    @classmethod
    def _in_a_stream(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value:
            check_streaming(info)
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _telling_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("logprobs") is not True:
            raise PydanticCustomError("no_logprobs", "this goes with 'logprobs', which is not true")
        return value

    @field_validator(*FORMATS)
    @classmethod
    def _not_beside_demanded_calls(cls, value: object, info: ValidationInfo) -> object:
        if constrains(value) and info.data.get("tool_choice") not in (None, "none", "auto"):
            raise PydanticCustomError(
                "format_of_calls", "'tool_choice' demands a call, so that no text of a format can come: leave one out"
            )
        return value

    def to_domain(self) -> GenerationRequest:
        """The payload for the engine."""
        return GenerationRequest(
            messages=tuple(message.to_domain() for message in self.messages),
            params=self.sampling(
                max_tokens=self.max_completion_tokens or self.max_tokens,
                logprobs=(self.top_logprobs or 0) if self.logprobs else None,
                constraint=self.constraint(),
            ),
            tools=tuple(tool.to_domain() for tool in self.tools or ()),
            tool_choice=choice_of(self.tool_choice),
            tool_name=self.named_tool,
            # A tool that is asked for by its name is called once.
            parallel_tool_calls=self.parallel_tool_calls is not False and self.named_tool is None,
            enable_thinking=self._thinking,
            reasoning_effort=self.reasoning_effort,
        )

    @property
    def _thinking(self) -> bool | None:
        switches = self.chat_template_kwargs or ChatTemplateKwargs()
        asked = (self.enable_thinking, switches.enable_thinking, switches.thinking)
        return next((one for one in asked if one is not None), None)
