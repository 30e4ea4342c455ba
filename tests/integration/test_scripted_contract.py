"""The scripted engine keeps the contract of all engines, and leaves alone what only a model can do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_calls import drain, prompt, tokens_by_task
from engine_contract import ENDLESS, QUESTION, TOPICS, A, EngineContract, Reference

from exo.domain.constraint import JsonObject
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, PrefillOutput
from exo.runner.engines.script import parse_script
from exo.runner.engines.scripted import ScriptedEngine
from tests import builders

CARD = builders.card(family="scripted", context=8192)
ANSWERS = {
    QUESTION: ["The", " capital", " of", " France", " is", " Paris", "."],
    **{f"Write a sentence about {topic}.": [f"{topic}{number} " for number in range(20)] for topic in TOPICS},
}
LONG = [f"word{number} " for number in range(600)]


def loaded(context: int) -> Engine:
    made = make_engine("scripted", Path())
    made.load(builders.whole(CARD.model_copy(update={"context": context})), Path(), lambda done, total: None)
    return made


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = loaded(CARD.context)
    yield made
    made.close()


@pytest.fixture
def tight() -> Iterator[Engine]:
    made = loaded(ENDLESS)
    yield made
    made.close()


@pytest.fixture
def reference(engine: Engine) -> Reference:
    """What the scripts say."""
    assert isinstance(engine, ScriptedEngine)
    tokenizer = engine.tokenizer
    return lambda prompts, most: [
        [tokenizer.token(piece) for piece in parse_script(tokenizer.text(tokens)).tokens][:most] for tokens in prompts
    ]


class TestScriptedEngine(EngineContract):
    """All of the contract."""

    def message(self, text: str) -> str:
        """A script."""
        return json.dumps({"tokens": ANSWERS.get(text, LONG)})


def test_the_script_alone_says_what_comes(engine: Engine) -> None:
    params = SamplingParams(seed=1, logit_bias=((1000, -100.0),), presence_penalty=2.0, constraint=JsonObject())
    tokens = prompt(engine, "yes yes yes")
    assert engine.tokenizer.guide(GenerationRequest(params=params), tokens) is None
    for given in (SamplingParams(), params):
        engine.submit(A, tokens, given)
        outputs = drain(engine)
        assert engine.tokenizer.decode(tokens_by_task(outputs)[A]) == "yes yes yes"
        assert outputs[0] == PrefillOutput(A, len(tokens), len(tokens), cached=0)
