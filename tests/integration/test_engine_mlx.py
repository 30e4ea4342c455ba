"""The MLX engine with a real model: SmolLM2-135M-Instruct in float32."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_calls import alone, drain, prompt, step_until, tokens_by_task
from engine_contract import ENDLESS, QUESTION, Reference
from model_contract import ModelContract

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Fatal
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, PrefillOutput
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.threads import ThreadShare
from tests import builders, tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.tiny_models import greedy_tokens

pytestmark = needs_mlx

SHARD = builders.whole(embedded())
GREEDY = SamplingParams(temperature=0, max_tokens=12)
A, B, C = TaskId("a"), TaskId("b"), TaskId("c")


@pytest.fixture(scope="module")
def folder(embedded_model: Path) -> Path:
    return embedded_model


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def loaded(folder: Path, cache: Path) -> Iterator[Engine]:
    made = make_engine("mlx", cache)
    made.load(SHARD, folder, lambda done, total: None)
    yield made
    made.close()


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    return loaded


@pytest.fixture
def tight(folder: Path, cache: Path) -> Iterator[Engine]:
    made = make_engine("mlx", cache)
    card = embedded().model_copy(update={"context": ENDLESS})
    made.load(builders.whole(card), folder, lambda done, total: None)
    yield made
    made.close()


@pytest.fixture
def reference(folder: Path) -> Reference:
    """mlx-lm by itself."""
    return lambda prompts, most: [greedy_tokens(folder, list(tokens), most) for tokens in prompts]


class TestMlxEngine(ModelContract):
    """All of the contract."""


def test_a_request_that_joins_late_and_one_that_is_cancelled_change_nothing_for_the_others(engine: Engine) -> None:
    expected = {
        text: alone(engine, text, GREEDY) for text in ("Name three colours.", "Count from one to ten in words.")
    }
    first, second = expected
    engine.submit(A, prompt(engine, first), GREEDY)
    engine.submit(C, prompt(engine, "Tell me a long story."), SamplingParams(max_tokens=500))
    before = step_until(engine, lambda outputs: len(tokens_by_task(outputs)[C]) >= 2)
    engine.submit(B, prompt(engine, second), GREEDY)
    engine.cancel([C, C, TaskId("unknown")])
    after = drain(engine)
    assert C not in {output.task_id for output in after}
    assert tokens_by_task(before + after)[A] == expected[first]
    assert tokens_by_task(after)[B] == expected[second]


def test_a_request_is_cancelled_while_its_prompt_is_computed(engine: Engine) -> None:
    engine.submit(A, prompt(engine, "word " * 300), GREEDY)
    step_until(engine, lambda outputs: any(isinstance(output, PrefillOutput) for output in outputs))
    engine.cancel([A])
    assert engine.in_flight == 0
    assert engine.step() == []
    assert alone(engine, QUESTION, GREEDY)


def test_prefill_is_reported_to_the_last_token(tiny_model: TinyModels) -> None:
    tiny = MlxEngine(tiny_models.BLAS_CACHE, ThreadShare(), SlicePace(least=256, most=256))
    tiny.load(tiny_models.shard("llama"), tiny_model("llama"), lambda done, total: None)
    tiny.submit(A, tiny_models.prompt(700), SamplingParams(temperature=0, max_tokens=1))
    seen = [output.done for output in drain(tiny) if isinstance(output, PrefillOutput)]
    assert seen == sorted(seen)
    assert seen[-1] == 700
    assert len(seen) > 2
    tiny.close()


def test_loading_reports_every_layer_and_closing_may_be_repeated(folder: Path, cache: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = make_engine("mlx", cache)
    made.close()
    made.load(SHARD, folder, lambda done, total: seen.append((done, total)))
    assert seen == [(done, 30) for done in range(31)]
    made.close()
    made.close()
    with pytest.raises(Fatal):
        _ = made.tokenizer


def test_a_part_of_a_model_and_an_empty_folder_are_fatal(folder: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="2 ranks"):
        make_engine("mlx", cache).load(builders.shards(SHARD, "pipeline", 2)[0], folder, lambda done, total: None)
    with pytest.raises(Fatal, match=r"config\.json cannot be read"):
        make_engine("mlx", cache).load(SHARD, tmp_path, lambda done, total: None)
