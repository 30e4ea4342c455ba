"""Structured output and logprobs of a real model: SmolLM2-135M-Instruct in float32, at temperature 1."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import jsonschema
import pytest

from exo.domain.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex
from exo.domain.ids import TaskId
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, EngineOutput, FailedOutput, TokenOutput
from tests import builders
from tests.conftest import needs_mlx

pytestmark = needs_mlx

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}
SCHEMA = JsonSchema(text=json.dumps(PERSON))
DATE = Regex(pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@pytest.fixture(scope="module")
def engine(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = make_engine("mlx", tmp_path_factory.mktemp("cache"))
    made.load(builders.whole(embedded()), embedded_model, lambda done, total: None)
    yield made
    made.close()


def generate(engine: Engine, requests: Sequence[SamplingParams], text: str) -> dict[TaskId, list[EngineOutput]]:
    """What comes of requests that run side by side, named by their number."""
    tokenizer = engine.tokenizer
    prompt = tokenizer.encode_chat([{"role": "user", "content": text}])
    outputs: dict[TaskId, list[EngineOutput]] = {}
    for number, params in enumerate(requests):
        guide = tokenizer.guide(GenerationRequest(messages=(), params=params), prompt)
        task_id = TaskId(str(number))
        outputs[task_id] = []
        engine.submit(task_id, prompt, params, guide)
    while engine.in_flight:
        for output in engine.step():
            outputs[output.task_id].append(output)
    return outputs


def text_of(engine: Engine, outputs: Sequence[EngineOutput]) -> str:
    tokens = [output for output in outputs if isinstance(output, TokenOutput) and output.finish_reason != "stop"]
    return b"".join(engine.tokenizer.token_bytes(output.token) for output in tokens).decode(errors="replace")


def finish_of(outputs: Sequence[EngineOutput]) -> str | None:
    last = outputs[-1]
    assert isinstance(last, TokenOutput), last
    return last.finish_reason


def params(constraint: Constraint | None, seed: int, **more: object) -> SamplingParams:
    return SamplingParams.model_validate({"constraint": constraint, "seed": seed, "max_tokens": 120, **more})


def test_every_answer_is_valid_beside_free_requests(engine: Engine) -> None:
    requests = [params(SCHEMA, seed) for seed in range(4)]
    requests += [params(DATE, 1), params(Choice(choices=("Paris", "Rome")), 2), params(None, 3, max_tokens=30)]
    requests += [params(SCHEMA, 4, temperature=0), params(None, 5, temperature=0, max_tokens=10)]
    outputs = generate(engine, requests, "Describe a person as JSON.")
    texts = [text_of(engine, outputs[TaskId(str(number))]) for number in range(len(requests))]
    for number in [0, 1, 2, 3, 7]:
        assert finish_of(outputs[TaskId(str(number))]) == "stop"
        jsonschema.validate(json.loads(texts[number]), PERSON)
    assert re.fullmatch(DATE.pattern, texts[4])
    assert texts[5] in ("Paris", "Rome")
    assert finish_of(outputs[TaskId("4")]) == finish_of(outputs[TaskId("5")]) == "stop"
    assert len(set(texts[:4])) > 1, "every seed gave the same answer"


def test_free_requests_answer_the_same_beside_constrained_ones(engine: Engine) -> None:
    free = [params(None, 3, max_tokens=20), params(None, 5, temperature=0, max_tokens=20)]
    beside = generate(engine, [*free, params(SCHEMA, 1)], "Describe a person as JSON.")
    for number, one in enumerate(free):
        (alone,) = generate(engine, [one], "Describe a person as JSON.").values()
        assert text_of(engine, alone) == text_of(engine, beside[TaskId(str(number))])


def test_an_answer_that_is_cut_is_incomplete_and_says_so(engine: Engine) -> None:
    (outputs,) = generate(engine, [params(SCHEMA, 1, max_tokens=4)], "Describe a person as JSON.").values()
    assert finish_of(outputs) == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(text_of(engine, outputs))


def test_any_object_at_high_temperature_is_an_object_or_was_cut(engine: Engine) -> None:
    requests = [params(JsonObject(), seed, temperature=1.5, max_tokens=60) for seed in range(4)]
    for outputs in generate(engine, requests, "Give me JSON.").values():
        text = text_of(engine, outputs)
        assert text.startswith("{")
        assert finish_of(outputs) == "length" or isinstance(json.loads(text), dict)


def test_a_constraint_that_becomes_too_complex_ends_its_request_alone(engine: Engine) -> None:
    heavy = Regex(pattern="(a{1000}){1000}", param="guided_regex")
    requests = [params(heavy, 1), params(None, 2, max_tokens=8)]
    outputs = generate(engine, requests, "Write the letter a many times.")
    failed = outputs[TaskId("0")][-1]
    assert isinstance(failed, FailedOutput)
    assert (failed.code, failed.param) == ("invalid_response_format", "guided_regex")
    assert finish_of(outputs[TaskId("1")]) in ("length", "stop")


def test_logprobs_are_of_the_tokens_that_came_and_their_bytes_make_the_text(engine: Engine) -> None:
    requests = [
        params(None, 1, temperature=0, logprobs=3, max_tokens=12),
        params(None, 1, logprobs=0, max_tokens=12, presence_penalty=1.0),
        params(SCHEMA, 1, logprobs=20, max_tokens=12),
        params(None, 1, max_tokens=12),
    ]
    outputs = generate(engine, requests, "What does the Zürich – Paris train cost? 🚆")
    for number, (one, count) in enumerate(zip(outputs.values(), (3, 0, 20, None), strict=True)):
        told = [output for output in one if isinstance(output, TokenOutput)]
        if count is None:
            assert all(output.logprobs is None for output in told)
            continue
        for output in told:
            assert output.logprobs is not None
            assert bytes(output.logprobs.bytes) == engine.tokenizer.token_bytes(output.token)
            assert len(output.logprobs.top_logprobs) == count
            values = [top.logprob for top in output.logprobs.top_logprobs]
            assert values == sorted(values, reverse=True)
            if number == 0:
                assert output.logprobs.top_logprobs[0].logprob == pytest.approx(output.logprobs.logprob, abs=1e-4)
