"""What every engine does, on the same real model. Each engine's tests inherit it and give the fixtures `engine`, which
is loaded, and `reference`, what the engine's library generates by itself, greedily, one prompt at a time."""

import json
from collections.abc import Callable, Sequence

import pytest
from engine_calls import alone, drain, prompt, step_until, tokens_by_task

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.domain.ids import TaskId
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.base import Engine, EngineOutput, PrefillOutput, TokenOutput
from tests.pipelines import pipeline_of, text_of

Reference = Callable[[Sequence[Sequence[int]], int], Sequence[Sequence[int]]]
"""From prompts, and how many tokens at most, to the answers' tokens, the end token included."""

QUESTION = "What is the capital of France?"
TOPICS = ("rain", "the sea", "bread", "a clock", "snow", "a train", "an old tree", "the moon")
GREEDY = SamplingParams(temperature=0, max_tokens=16)
A, B, C = TaskId("a"), TaskId("b"), TaskId("c")


class EngineContract:
    """Tests of an engine that computes with SmolLM2-135M-Instruct in float32."""

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, engine: Engine) -> None:
        assert engine.in_flight == 0, "the test before left requests behind"

    def test_an_answer_is_right_and_ends_by_itself(self, engine: Engine) -> None:
        engine.submit(A, prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=40))
        outputs = drain(engine)
        assert "Paris" in said(engine, outputs, A)
        assert outputs[-1] == TokenOutput(A, max(tokens_by_task(outputs)[A][-1:]), "stop")
        assert tokens_by_task(outputs)[A][-1] in engine.tokenizer.end_tokens

    def test_eight_requests_that_join_one_after_the_other_equal_the_library(
        self, engine: Engine, reference: Reference
    ) -> None:
        prompts = {TaskId(topic): prompt(engine, f"Write a sentence about {topic}.") for topic in TOPICS}
        outputs: list[EngineOutput] = []
        for task_id, tokens in prompts.items():
            engine.submit(task_id, tokens, GREEDY)
            outputs += engine.step()
        outputs += drain(engine)
        expected = reference(list(prompts.values()), 16)
        assert [tokens_by_task(outputs)[task_id] for task_id in prompts] == [list(tokens) for tokens in expected]

    def test_a_cancelled_request_says_no_more_and_changes_nothing_for_the_others(self, engine: Engine) -> None:
        expected = alone(engine, QUESTION, GREEDY)
        engine.submit(A, prompt(engine, "Tell me a long story."), SamplingParams(max_tokens=500))
        engine.submit(B, prompt(engine, QUESTION), GREEDY)
        before = step_until(engine, lambda outputs: len(tokens_by_task(outputs)[A]) >= 2)
        engine.cancel([A, A, TaskId("unknown")])
        after = drain(engine)
        assert A not in {output.task_id for output in after}
        assert tokens_by_task(before + after)[B] == expected

    def test_the_limit_of_tokens_is_exact(self, engine: Engine) -> None:
        engine.submit(A, prompt(engine, "Tell me a long story."), SamplingParams(temperature=0, max_tokens=7))
        reasons = [output.finish_reason for output in drain(engine) if isinstance(output, TokenOutput)]
        assert reasons == [*[None] * 6, "length"]

    def test_the_same_seed_gives_the_same_text_whatever_runs_beside(self, engine: Engine) -> None:
        params = SamplingParams(temperature=1, top_p=0.95, seed=2**63 + 1, max_tokens=12)
        text = "Write a poem about rain."
        expected = alone(engine, text, params)
        engine.submit(B, prompt(engine, "Tell me a story."), SamplingParams(max_tokens=20))
        step_until(engine, lambda outputs: len(tokens_by_task(outputs)[B]) >= 2)
        engine.submit(A, prompt(engine, text), params)
        engine.submit(C, prompt(engine, "Hi"), SamplingParams(seed=1, max_tokens=5))
        assert tokens_by_task(drain(engine))[A] == expected

    def test_without_a_seed_every_text_is_another(self, engine: Engine) -> None:
        for task_id in (A, B, C):
            engine.submit(task_id, prompt(engine, "Write a poem about rain."), SamplingParams(max_tokens=12))
        texts = tokens_by_task(drain(engine))
        assert len({tuple(tokens) for tokens in texts.values()}) == 3

    @pytest.mark.parametrize(
        "params",
        [
            SamplingParams(top_k=1, max_tokens=12),
            SamplingParams(top_p=1e-6, max_tokens=12),
            SamplingParams(min_p=1, max_tokens=12),
        ],
        ids=["top_k", "top_p", "min_p"],
    )
    def test_what_leaves_only_the_likeliest_token_is_greedy(self, engine: Engine, params: SamplingParams) -> None:
        greedy = SamplingParams(temperature=0, max_tokens=12)
        assert alone(engine, QUESTION, params) == alone(engine, QUESTION, greedy)

    def test_a_bias_forbids_and_forces(self, engine: Engine) -> None:
        first = alone(engine, QUESTION, GREEDY)[0]
        forbidden = GREEDY.model_copy(update={"logit_bias": ((first, -100.0),)})
        assert alone(engine, QUESTION, forbidden)[0] != first
        forced = GREEDY.model_copy(update={"logit_bias": ((1234, 100.0),), "max_tokens": 4})
        assert alone(engine, QUESTION, forced) == [1234] * 4

    @pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
    def test_a_penalty_ends_a_repetition(self, engine: Engine, penalty: str) -> None:
        """Of a token that a bias makes the likeliest by little."""
        text = "Say yes. yes yes yes yes yes yes yes yes"
        free = alone(engine, text, GREEDY)
        held = alone(engine, text, GREEDY.model_copy(update={penalty: 2.0}))
        assert len(set(held)) > len(set(free)) or held != free

    def test_logprobs_are_those_of_the_model_and_their_bytes_join_to_the_text(self, engine: Engine) -> None:
        engine.submit(A, prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=6, logprobs=3))
        outputs = [output for output in drain(engine) if isinstance(output, TokenOutput)]
        told = [output.logprobs for output in outputs if output.logprobs is not None]
        assert len(told) == len(outputs) == 6
        assert b"".join(bytes(one.bytes) for one in told).decode() == said(engine, outputs, A)
        for one in told:
            values = [top.logprob for top in one.top_logprobs]
            assert values == sorted(values, reverse=True)
            assert len(values) == 3
            assert (one.top_logprobs[0].bytes, one.top_logprobs[0].logprob) == (one.bytes, one.logprob)

    @pytest.mark.parametrize(("constraint", "is_right"), [
        (JsonObject(), lambda text: isinstance(json.loads(text), dict)),
        (JsonSchema(text='{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],'
                    '"additionalProperties":false}'), lambda text: isinstance(json.loads(text)["n"], int)),
        (Regex(pattern="[0-9]{3}/x"), lambda text: text[:3].isdigit() and text[3:] == "/x"),
        (Choice(choices=("Lyon", "Nice")), lambda text: text in {"Lyon", "Nice"}),
        (Grammar(text='start: "a" start | "b"'), lambda text: text.strip("a") == "b"),
    ], ids=lambda value: getattr(value, "type", ""))  # fmt: skip
    def test_an_answer_is_held_to_its_constraint_beside_one_that_is_free(
        self, engine: Engine, constraint: Constraint, is_right: Callable[[str], bool]
    ) -> None:
        expected = alone(engine, QUESTION, GREEDY)
        params = SamplingParams(temperature=0, max_tokens=60, constraint=constraint)
        request = GenerationRequest(params=params)
        tokens = prompt(engine, 'Answer with an object {"n": 5}.')
        engine.submit(A, tokens, params, engine.tokenizer.guide(request, tokens))
        engine.submit(B, prompt(engine, QUESTION), GREEDY)
        outputs = drain(engine)
        assert is_right(said(engine, outputs, A))
        assert tokens_by_task(outputs)[B] == expected

    def test_a_request_over_the_context_is_refused_with_both_numbers(self, engine: Engine) -> None:
        with pytest.raises(Rejected, match=r"context length is 8192 tokens, but 8200 ") as refused:
            engine.submit(A, [5] * 8000, SamplingParams(max_tokens=200))
        assert refused.value.code == "context_length_exceeded"
        assert engine.in_flight == 0

    def test_requests_that_make_no_sense_are_refused(self, engine: Engine) -> None:
        engine.submit(B, prompt(engine, QUESTION), GREEDY)
        for task_id, tokens, code in (
            (A, [], "empty_prompt"),
            (A, [2**70, 5], "invalid_request"),
            (B, [5], "duplicate_task"),
        ):
            with pytest.raises(Rejected) as refused:
                engine.submit(task_id, tokens, GREEDY)
            assert refused.value.code == code
        assert engine.in_flight == 1
        assert drain(engine)

    def test_what_another_request_began_with_is_not_computed_again(self, engine: Engine) -> None:
        text = "The rain had fallen for a week, and nobody went out. " * 12
        for task_id in (A, B):
            engine.submit(task_id, prompt(engine, text), GREEDY)
            last = [output for output in drain(engine) if isinstance(output, PrefillOutput)][-1]
        assert last.done == last.total
        assert last.cached > last.total // 2


def said(engine: Engine, outputs: Sequence[EngineOutput], task_id: TaskId) -> str:
    """The text of one request."""
    pipeline = pipeline_of(engine.tokenizer)
    own = [output for output in outputs if isinstance(output, TokenOutput) and output.task_id == task_id]
    return "".join(text_of(pipeline.push(output.token, output.finish_reason)) for output in own)
