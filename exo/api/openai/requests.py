"""The body of `POST /v1/chat/completions`, with OpenAI's names. What would be ignored is refused by name."""

from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.openai.choice_requests import ChoiceCount
from exo.api.openai.formats import (
    FORMATS,
    Choices,
    JsonSchemaText,
    ResponseFormat,
    StructuredOutputs,
    constrains,
    constraint_of,
)
from exo.api.openai.messages import Message
from exo.api.openai.tools import ChosenTool, ToolChoiceField, Tools, choice_of
from exo.api.strict import ModelName, StopSequence, Strict, Unsupported
from exo.api.tool_names import check_demanded
from exo.domain.constraint import Constraint
from exo.domain.logprobs import TOP_LOGPROBS_MOST
from exo.domain.messages.requests import GenerationRequest, ReasoningEffort
from exo.domain.sampling import (
    BIASES_MOST,
    INTEGER_MOST,
    REPETITION_CONTEXT,
    TEMPERATURE_MOST,
    TOP_P_LEAST,
    Bias,
    Count,
    Penalty,
    RepetitionPenalty,
    SamplingParams,
    TokenNumber,
)

STOP_MOST = 4
SEEDS = 2**64


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class StreamOptions(Strict):
    """What a stream contains besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ChatTemplateKwargs(Strict):
    """Switches of chat templates, as vLLM and SGLang take them."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


class ChatCompletionRequest(Strict):
    """A chat request. Null stands for the default throughout."""

    model: ModelName
    messages: Annotated[list[Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=TEMPERATURE_MOST)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: Annotated[list[StopSequence], BeforeValidator(_listed), Field(max_length=STOP_MOST)] | None = None
    seed: int | None = None
    n: ChoiceCount | None = None

    tools: Tools | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    top_k: Annotated[int, Field(ge=-1, le=INTEGER_MOST)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    repetition_context_size: Count | None = None
    logit_bias: Annotated[dict[TokenNumber, Bias], Field(max_length=BIASES_MOST)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    modalities: list[Literal["text"]] | None = None
    functions: Unsupported = None
    function_call: Unsupported = None
    store: Unsupported = None
    service_tier: Unsupported = None
    audio: Unsupported = None
    prediction: Unsupported = None
    verbosity: Unsupported = None
    web_search_options: Unsupported = None

    @field_validator("max_completion_tokens")
    @classmethod
    def _same_limit(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("max_tokens") not in (None, value):
            raise PydanticCustomError("limits_differ", "'max_tokens' is given too, and it is another number")
        return value

    @field_validator("stream_options")
    @classmethod
    def _streaming(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and info.data.get("stream") is not True:
            raise PydanticCustomError("not_streaming", "this is for streams only, and 'stream' is not true")
        return value

    @field_validator("tool_choice")
    @classmethod
    def _choosable(cls, value: ToolChoiceField | None, info: ValidationInfo) -> ToolChoiceField | None:
        if value in (None, "none", "auto"):
            return value
        offered = [tool.function.name for tool in cast("Tools | None", info.data.get("tools")) or ()]
        check_demanded(value.function.name if isinstance(value, ChosenTool) else None, offered)
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _telling_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("logprobs") is not True:
            raise PydanticCustomError("no_logprobs", "this goes with 'logprobs', which is not true")
        return value

    @field_validator("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
    @classmethod
    def _one_format(cls, value: object, info: ValidationInfo) -> object:
        before = [name for name in FORMATS if name != info.field_name and constrains(info.data.get(name))]
        if value is not None and before:
            raise PydanticCustomError("two_formats", "'{name}' is given too; one can be met", {"name": before[0]})
        return value

    @field_validator(*FORMATS)
    @classmethod
    def _not_beside_demanded_calls(cls, value: object, info: ValidationInfo) -> object:
        if constrains(value) and info.data.get("tool_choice") not in (None, "none", "auto"):
            raise PydanticCustomError(
                "format_of_calls", "'tool_choice' demands a call, so that no text of a format can come: leave one out"
            )
        return value

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk that holds the usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def to_domain(self) -> GenerationRequest:
        """The payload for the engine."""
        params = SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else max(self.top_p, TOP_P_LEAST),
            seed=None if self.seed is None else self.seed % SEEDS,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=tuple(self.stop or ()),
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            repetition_context=self.repetition_context_size or REPETITION_CONTEXT,
            logit_bias=tuple(sorted((self.logit_bias or {}).items())),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            constraint=self._constraint(),
        )
        named = self.tool_choice.function.name if isinstance(self.tool_choice, ChosenTool) else None
        return GenerationRequest(
            messages=tuple(message.to_domain() for message in self.messages),
            params=params,
            tools=tuple(tool.to_domain() for tool in self.tools or ()),
            tool_choice=choice_of(self.tool_choice),
            tool_name=named,
            # A tool that is asked for by its name is called once.
            parallel_tool_calls=self.parallel_tool_calls is not False and named is None,
            enable_thinking=self._thinking,
            reasoning_effort=self.reasoning_effort,
        )

    @property
    def _thinking(self) -> bool | None:
        switches = self.chat_template_kwargs or ChatTemplateKwargs()
        asked = (self.enable_thinking, switches.enable_thinking, switches.thinking)
        return next((one for one in asked if one is not None), None)

    def _constraint(self) -> Constraint | None:
        asked = (constraint_of(getattr(self, name), name) for name in FORMATS)
        return next((constraint for constraint in asked if constraint is not None), None)
