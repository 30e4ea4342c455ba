"""The bodies of Anthropic's endpoints. What would be ignored is refused by name."""

from typing import Annotated, Literal, cast

from pydantic import Field, JsonValue, Tag, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.anthropic.blocks import CacheControl
from exo.api.anthropic.conversation import InputMessage, Texts, conversation
from exo.api.anthropic.tools import ToolChoice, Tools, choice_of, demands_call, is_parallel, named_by
from exo.api.bodies.strict import LIST_MOST, AsksModel, StopSequence, Strict, Unsupported, by_field
from exo.api.bodies.tool_names import check_demanded
from exo.domain.constraint import Constraint, JsonSchema
from exo.domain.messages.requests import GenerationRequest, ReasoningEffort
from exo.domain.sampling import TOP_P_LEAST, Count, SamplingParams, TopK

STOP_MOST = 64
"""Each is looked for at each token."""
BUDGET_LEAST = 1024
"""Anthropic's limit."""

Display = Literal["summarized", "omitted"]


class ThinkingEnabled(Strict):
    """The model thinks. The budget is what Anthropic calls it, a target: `max_tokens` is the limit."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=BUDGET_LEAST)]
    display: Display | None = None


class ThinkingAdaptive(Strict):
    """The model thinks as much as it likes."""

    type: Literal["adaptive"]
    display: Display | None = None


class ThinkingDisabled(Strict):
    """The model does not think."""

    type: Literal["disabled"]


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("<enabled>")]
    | Annotated[ThinkingAdaptive, Tag("<adaptive>")]
    | Annotated[ThinkingDisabled, Tag("<disabled>")],
    by_field("type", "enabled", "adaptive", "disabled"),
]


class OutputFormat(Strict):
    """A schema that the answer is held to."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema")]


class OutputConfig(Strict):
    """What the answer is to be like."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None

    @property
    def reasoning_effort(self) -> ReasoningEffort | None:
        """The most that there is stands for `max`."""
        return "xhigh" if self.effort == "max" else self.effort

    @property
    def constraint(self) -> Constraint | None:
        """The format, if there is one."""
        if self.format is None:
            return None
        return JsonSchema(text=to_json(self.format.schema_).decode(), param="output_config.format.schema")


class PromptRequest(AsksModel):
    """What a prompt is made of: all of the body of `POST /v1/messages/count_tokens`, and the beginning of the other's.
    Null stands for the default throughout."""

    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=LIST_MOST)]
    system: Texts | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    speed: Literal["standard"] | None = None
    context_management: Unsupported = None
    mcp_servers: Unsupported = None
    user_profile_id: Unsupported = None
    workspace_id: Unsupported = None

    @field_validator("messages")
    @classmethod
    def _to_be_answered(cls, messages: list[InputMessage]) -> list[InputMessage]:
        if messages[-1].role == "assistant":
            text = "the last message is the assistant's: exo gives a new answer, and does not go on with one"
            raise PydanticCustomError("not_supported", text)
        return messages

    @field_validator("tool_choice")
    @classmethod
    def _choosable(cls, value: ToolChoice | None, info: ValidationInfo) -> ToolChoice | None:
        if demands_call(value):
            check_demanded(named_by(value), [tool.name for tool in cast("Tools | None", info.data.get("tools")) or ()])
        return value

    @field_validator("output_config")
    @classmethod
    def _not_beside_demanded_calls(cls, value: OutputConfig | None, info: ValidationInfo) -> OutputConfig | None:
        if value is not None and value.format and demands_call(info.data.get("tool_choice")):
            text = "'tool_choice' demands a call, so that no text of a format can come: leave one out"
            raise PydanticCustomError("format_of_calls", text)
        return value

    @property
    def constraint(self) -> Constraint | None:
        """What the answer's text must look like."""
        return self.output_config.constraint if self.output_config else None

    def to_domain(self, params: SamplingParams | None = None) -> GenerationRequest:
        """The payload for the engine."""
        return GenerationRequest(
            messages=conversation(self.system or (), self.messages),
            params=params or SamplingParams(),
            tools=tuple(tool.to_domain() for tool in self.tools or ()),
            tool_choice=choice_of(self.tool_choice),
            tool_name=named_by(self.tool_choice),
            parallel_tool_calls=is_parallel(self.tool_choice),
            enable_thinking=None if self.thinking is None else self.thinking.type != "disabled",
            reasoning_effort=self.output_config.reasoning_effort if self.output_config else None,
        )


class Metadata(Strict):
    """About the request. It has no effect on the answer."""

    user_id: str | None = None


class MessagesRequest(PromptRequest):
    """The body of `POST /v1/messages`."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: Annotated[list[StopSequence], Field(max_length=STOP_MOST)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: TopK | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: Unsupported = None
    diagnostics: Unsupported = None
    inference_geo: Unsupported = None

    @field_validator("max_tokens")
    @classmethod
    def _more_than_thoughts(cls, value: int, info: ValidationInfo) -> int:
        thinking = info.data.get("thinking")
        if isinstance(thinking, ThinkingEnabled) and thinking.budget_tokens >= value:
            text = "this must be more than 'thinking.budget_tokens', {budget}: thoughts count as well"
            raise PydanticCustomError("budget", text, {"budget": thinking.budget_tokens})
        return value

    @property
    def shows_thinking(self) -> bool:
        """Whether thoughts come with their text."""
        thinking = self.thinking
        return not (isinstance(thinking, ThinkingEnabled | ThinkingAdaptive) and thinking.display == "omitted")

    def to_generation(self) -> GenerationRequest:
        """The payload for the engine, with how tokens are chosen and when the answer ends."""
        return self.to_domain(
            SamplingParams(
                temperature=1.0 if self.temperature is None else self.temperature,
                top_p=1.0 if self.top_p is None else max(self.top_p, TOP_P_LEAST),
                top_k=self.top_k or 0,
                max_tokens=self.max_tokens,
                stops_at_context=True,
                stop=tuple(self.stop_sequences or ()),
                constraint=self.constraint,
            )
        )
