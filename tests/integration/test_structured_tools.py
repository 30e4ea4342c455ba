"""Demanded calls: whatever a grammar lets through is read back as calls that fit the tools."""

import json
import random
from pathlib import Path

import jsonschema
import pytest

from exo.domain.messages.requests import GenerationRequest, Tool
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.models.output_format import OutputFormat, ToolFormat
from exo.runner.output.opening import open_pipeline
from exo.runner.output.segments import Call, Segment
from exo.runner.structured.compiling import Constraints
from exo.runner.structured.vocabulary import Vocabulary
from exo.runner.tokenizer import HuggingFaceTokenizer

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", 'Saint "X"']}, "days": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = (
    Tool(name="get_weather", parameters=json.dumps(PARAMETERS)),
    Tool(name="now", parameters='{"type": "object", "properties": {}, "additionalProperties": false}'),
)
FORMS: tuple[ToolFormat, ...] = (
    "hermes",
    "llama3_json",
    "mistral_json",
    "mistral_v11",
    "mistral_args",
    "kimi_k2",
    "deepseek_v31",
    "deepseek_v3",
)


@pytest.fixture(scope="module")
def tokenizer(embedded_model: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(embedded_model)


PLACE = {
    "$defs": {"City": {"enum": ["Oslo", "Bergen"]}},
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}},
    "required": ["city"],
    "additionalProperties": False,
}
NODE = {
    "type": "object",
    "properties": {"end": {"type": "boolean"}, "next": {"$ref": "#/$defs/Node"}},
    "required": ["end"],
    "additionalProperties": False,
}
LINKED = {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"}
CHAIN = {
    "type": "object",
    "properties": {"end": {"type": "boolean"}, "next": {"$ref": "#"}},
    "required": ["end"],
    "additionalProperties": False,
}


def demanding(
    tool_name: str | None = None, parallel: bool = True, tools: tuple[Tool, ...] = TOOLS
) -> GenerationRequest:
    return GenerationRequest(
        messages=(),
        params=SamplingParams(),
        tools=tools,
        tool_choice="required",
        tool_name=tool_name,
        parallel_tool_calls=parallel,
    )


def wander(vocabulary: Vocabulary, request: GenerationRequest, form: ToolFormat, seed: int) -> list[int]:
    """An answer of tokens drawn evenly among those that may come; it ends as soon as it may, or at an end token."""
    constraints, chance = Constraints(vocabulary, OutputFormat(tools=form)), random.Random(seed)
    wanted = constraints.wanted(request)
    assert wanted is not None
    guide = constraints.guide(wanted, [])
    tokens: list[int] = []
    while len(tokens) < 2000:
        mask = guide.allowed()
        assert mask is not None, guide.problem
        allowed = [token for token, byte in enumerate(mask) if byte]
        ends = [token for token in allowed if token in vocabulary.tokens.eos_tokens]
        if ends and (chance.random() < 0.7 or len(ends) == len(allowed)):
            return tokens
        longest = sorted(set(allowed) - set(ends), key=lambda token: -len(vocabulary.bytes_of(token)))
        tokens.append(chance.choice(longest[:5]))
        guide.take(tokens[-1])
    raise AssertionError("the calls did not come to an end")


def read(
    tokenizer: HuggingFaceTokenizer, request: GenerationRequest, form: ToolFormat, tokens: list[int]
) -> list[Segment]:
    pipeline = open_pipeline(OutputFormat(tools=form), tokenizer, request)
    found = [segment for token in tokens for segment in pipeline.push(token).segments]
    return [*found, *pipeline.push(2, "stop").segments]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tool_name", [None, "get_weather"])
def test_what_is_let_through_is_read_as_calls_of_the_tools(
    tokenizer: HuggingFaceTokenizer, vocabulary: Vocabulary, form: ToolFormat, tool_name: str | None
) -> None:
    schemas = {tool.name: json.loads(tool.parameters) for tool in TOOLS}
    for seed in range(4):
        request = demanding(tool_name)
        segments = read(tokenizer, request, form, wander(vocabulary, request, form, seed))
        assert segments
        for segment in segments:
            assert isinstance(segment, Call), segment
            assert tool_name in (None, segment.name)
            jsonschema.validate(json.loads(segment.arguments), schemas[segment.name])


@pytest.mark.parametrize("form", FORMS)
def test_without_parallel_calls_there_is_one(
    tokenizer: HuggingFaceTokenizer, vocabulary: Vocabulary, form: ToolFormat
) -> None:
    request = demanding("now", parallel=False)
    (call,) = read(tokenizer, request, form, wander(vocabulary, request, form, 1))
    assert call == Call("now", "{}")


@pytest.mark.parametrize("form", ["qwen3_coder", "glm", "minimax_m2", "deepseek_v32", "deepseek_v4", None])
def test_a_form_whose_arguments_are_no_json_is_refused(vocabulary: Vocabulary, form: ToolFormat | None) -> None:
    with pytest.raises(Rejected) as refusal:
        Constraints(vocabulary, OutputFormat(tools=form)).wanted(demanding())
    assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", "tool_choice")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parameters", [PLACE, LINKED, CHAIN])
def test_references_are_into_the_parameters_themselves(
    tokenizer: HuggingFaceTokenizer, vocabulary: Vocabulary, form: ToolFormat, parameters: dict[str, object]
) -> None:
    request = demanding(tools=(Tool(name="find", parameters=json.dumps(parameters), strict=True),), parallel=False)
    for seed in range(2):
        (call,) = read(tokenizer, request, form, wander(vocabulary, request, form, seed))
        assert isinstance(call, Call), call
        jsonschema.validate(json.loads(call.arguments), parameters)


@pytest.mark.parametrize("form", ["hermes", "kimi_k2"])
@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"type": "string"}, "'object'"),
        ({"type": ["object", "null"]}, "'object'"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ""),
        ({"properties": {"a": {"type": "colour"}}}, "colour"),
        ({"properties": {"a": {"$ref": "#/$defs/Nowhere"}}}, "Nowhere"),
        ({"properties": {"a": {"type": "integer", "multipleOf": 300000017}}}, "multipleOf"),
        ({"properties": {"a": False}, "required": ["a"]}, ""),
    ],
)
def test_parameters_that_cannot_be_held_are_named(
    vocabulary: Vocabulary, form: ToolFormat, parameters: dict[str, object], reason: str
) -> None:
    request = demanding(tools=(TOOLS[1], Tool(name="bad", parameters=json.dumps(parameters))))
    with pytest.raises(Rejected) as refusal:
        Constraints(vocabulary, OutputFormat(tools=form)).wanted(request)
    assert refusal.value.param == "tools[1].function.parameters"
    assert refusal.value.reason.startswith("tools[1].function.parameters: ")
    assert reason in refusal.value.reason
    for inner in ("%json", "start:", "call_", "x-guidance"):
        assert inner not in refusal.value.reason
