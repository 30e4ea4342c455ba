"""What every engine does that computes with a model, beside what all engines do."""

import json
from collections.abc import Callable

import pytest
from engine_calls import drain, tokens_by_task
from engine_contract import GREEDY, QUESTION, A, B, C, EngineContract, said

from exo.domain.constraint import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.runner.engines.base import Engine, PrefillOutput


class ModelContract(EngineContract):
    """Tests of an engine that computes with SmolLM2-135M-Instruct in float32."""

    def test_without_a_seed_every_text_is_another(self, engine: Engine) -> None:
        for task_id in (A, B, C):
            engine.submit(task_id, self.prompt(engine, "Write a poem about rain."), SamplingParams(max_tokens=12))
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
        assert self.alone(engine, QUESTION, params) == self.alone(engine, QUESTION, greedy)

    def test_a_bias_forbids_and_forces(self, engine: Engine) -> None:
        first = self.alone(engine, QUESTION, GREEDY)[0]
        forbidden = GREEDY.model_copy(update={"logit_bias": ((first, -100.0),)})
        assert self.alone(engine, QUESTION, forbidden)[0] != first
        forced = GREEDY.model_copy(update={"logit_bias": ((1234, 100.0),), "max_tokens": 4})
        assert self.alone(engine, QUESTION, forced) == [1234] * 4

    @pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
    def test_a_penalty_ends_a_repetition(self, engine: Engine, penalty: str) -> None:
        text = "Say yes. yes yes yes yes yes yes yes yes"
        free = self.alone(engine, text, GREEDY)
        held = self.alone(engine, text, GREEDY.model_copy(update={penalty: 2.0}))
        assert len(set(held)) > len(set(free)) or held != free

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
        expected = self.alone(engine, QUESTION, GREEDY)
        params = SamplingParams(temperature=0, max_tokens=60, constraint=constraint)
        request = GenerationRequest(params=params)
        tokens = self.prompt(engine, 'Answer with an object {"n": 5}.')
        engine.submit(A, tokens, params, engine.tokenizer.guide(request, tokens))
        engine.submit(B, self.prompt(engine, QUESTION), GREEDY)
        outputs = drain(engine)
        assert is_right(said(engine, outputs, A))
        assert tokens_by_task(outputs)[B] == expected

    def test_what_another_request_began_with_is_not_computed_again(self, engine: Engine) -> None:
        text = "The rain had fallen for a week, and nobody went out. " * 12
        for task_id in (A, B):
            engine.submit(task_id, self.prompt(engine, text), GREEDY)
            last = [output for output in drain(engine) if isinstance(output, PrefillOutput)][-1]
        assert last.done == last.total
        assert last.cached > last.total // 2
