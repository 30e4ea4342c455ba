"""The MLX engine with a real model: SmolLM2-135M-Instruct in float32."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Fatal, Rejected
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, EngineOutput, PrefillOutput, TokenOutput
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.threads import ThreadShare
from tests import builders, tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.pipelines import pipeline_of, text_of
from tests.tiny_models import greedy_tokens

pytestmark = needs_mlx

SHARD = builders.whole(embedded())
QUESTION = "What is the capital of France?"
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
    assert loaded.in_flight == 0, "the test before left requests behind"
    return loaded


def prompt(engine: Engine, text: str) -> list[int]:
    return engine.tokenizer.encode_chat([{"role": "user", "content": text}])


def drain(engine: Engine) -> list[EngineOutput]:
    outputs: list[EngineOutput] = []
    while engine.in_flight:
        outputs += engine.step()
    return outputs


def step_until(engine: Engine, reached: Callable[[list[EngineOutput]], bool]) -> list[EngineOutput]:
    outputs: list[EngineOutput] = []
    while not reached(outputs):
        assert engine.in_flight
        outputs += engine.step()
    return outputs


def tokens_by_task(outputs: Sequence[EngineOutput]) -> Mapping[TaskId, list[int]]:
    tokens: defaultdict[TaskId, list[int]] = defaultdict(list)
    for output in outputs:
        if isinstance(output, TokenOutput):
            tokens[output.task_id].append(output.token)
    return tokens


def alone(engine: Engine, text: str, params: SamplingParams) -> list[int]:
    engine.submit(A, prompt(engine, text), params)
    return tokens_by_task(drain(engine))[A]


def test_an_answer_is_right_and_ends_by_itself(engine: Engine) -> None:
    engine.submit(A, prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=40))
    pipeline = pipeline_of(engine.tokenizer)
    results = [pipeline.push(out.token, out.finish_reason) for out in drain(engine) if isinstance(out, TokenOutput)]
    assert "Paris" in "".join(text_of(result) for result in results)
    assert results[-1].finished == "stop"


def test_a_greedy_batch_equals_mlx_lm_one_at_a_time(engine: Engine, folder: Path) -> None:
    texts = {A: QUESTION, B: "Name three colours.", C: "Write a haiku about rain and the sea please."}
    prompts = {task_id: prompt(engine, text) for task_id, text in texts.items()}
    for task_id, tokens in prompts.items():
        engine.submit(task_id, tokens, GREEDY)
    batched = tokens_by_task(drain(engine))
    for task_id, tokens in prompts.items():
        assert batched[task_id] == greedy_tokens(folder, tokens, GREEDY.max_tokens)


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


def test_the_same_seed_gives_the_same_text_whatever_runs_beside(engine: Engine) -> None:
    params = SamplingParams(temperature=1, top_p=0.95, seed=2**63 + 1, max_tokens=12)
    text = "Write a poem about rain."
    expected = alone(engine, text, params)
    engine.submit(B, prompt(engine, "Tell me a story."), SamplingParams(max_tokens=20))
    step_until(engine, lambda outputs: len(tokens_by_task(outputs)[B]) >= 2)
    engine.submit(A, prompt(engine, text), params)
    engine.submit(C, prompt(engine, "Hi"), SamplingParams(seed=1, max_tokens=5))
    assert tokens_by_task(drain(engine))[A] == expected


def test_without_a_seed_every_text_is_another(engine: Engine) -> None:
    for task_id in (A, B, C):
        engine.submit(task_id, prompt(engine, "Write a poem about rain."), SamplingParams(max_tokens=12))
    texts = tokens_by_task(drain(engine))
    assert len({tuple(tokens) for tokens in texts.values()}) == 3


def test_max_tokens_is_exact(engine: Engine) -> None:
    engine.submit(A, prompt(engine, "Tell me a long story."), SamplingParams(temperature=0, max_tokens=7))
    outputs = [output for output in drain(engine) if isinstance(output, TokenOutput)]
    assert [output.finish_reason for output in outputs] == [*[None] * 6, "length"]


def test_a_request_over_the_context_is_refused_with_both_numbers(engine: Engine) -> None:
    with pytest.raises(Rejected, match=r"context length is 8192 tokens, but 8200 ") as refused:
        engine.submit(A, [5] * 8000, SamplingParams(max_tokens=200))
    assert refused.value.code == "context_length_exceeded"
    assert engine.in_flight == 0


def test_a_request_that_memory_cannot_hold_is_refused_before_prefill_with_both_numbers(
    folder: Path, cache: Path
) -> None:
    large = make_engine("mlx", cache)
    endless = embedded().model_copy(update={"context": 10**9})
    large.load(builders.whole(endless), folder, lambda done, total: None)
    with pytest.raises(Rejected, match=r"needs 100000003 tokens .* memory holds \d+") as refused:
        large.submit(A, [5, 6, 7], SamplingParams(max_tokens=10**8))
    assert refused.value.code == "context_length_exceeded"
    large.submit(A, [5, 6, 7], SamplingParams())
    large.close()


def test_what_is_no_token_is_refused(engine: Engine) -> None:
    with pytest.raises(Rejected) as refused:
        engine.submit(A, [2**70, 5, 6], GREEDY)
    assert refused.value.code == "invalid_request"
    assert engine.in_flight == 0
    assert alone(engine, QUESTION, GREEDY)


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
