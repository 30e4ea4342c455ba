"""The vLLM engine with a real model: SmolLM2-135M-Instruct in float32."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from engine_calls import drain, step_until
from engine_contract import A, B, Reference
from model_contract import ModelContract

from exo.domain.sampling import SamplingParams
from exo.errors import Fatal
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, EngineOutput, PrefillOutput
from exo.runner.engines.threads import ThreadShare
from exo.runner.engines.vllm.engine import VllmEngine
from tests import builders
from tests.conftest import has_gpu, needs_vllm

pytestmark = [needs_vllm, pytest.mark.filterwarnings("ignore")]  # of what vLLM and torch do

SHARD = builders.whole(embedded())


@pytest.fixture(scope="module")
def loaded(embedded_model: Path) -> Iterator[Engine]:
    """Memory seems to hold the keys and values of some 6,000 tokens beside the weights: a process has one vLLM at once,
    so this one stands for `tight` too."""
    made = VllmEngine(ThreadShare(), free_bytes=lambda: embedded().weight_bytes + 350 * 2**20)
    made.load(SHARD, embedded_model, lambda done, total: None)
    yield made
    made.close()


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    return loaded


@pytest.fixture
def tight(loaded: Engine) -> Engine:
    return loaded


@pytest.fixture
def reference(embedded_model: Path) -> Reference:
    """vLLM by itself, in a process of its own."""

    def generate(prompts: Sequence[Sequence[int]], most: int) -> Sequence[Sequence[int]]:
        asked = json.dumps({"model": str(embedded_model), "prompts": [list(one) for one in prompts], "most": most})
        command = [sys.executable, str(Path(__file__).with_name("vllm_alone.py"))]
        answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, timeout=100)
        assert answer.returncode == 0, answer.stderr[-2000:]
        tokens: list[list[int]] = json.loads(answer.stdout.splitlines()[-1])
        return tokens

    return generate


class TestVllmEngine(ModelContract):
    """All of the contract."""

    too_many = 8000


@pytest.mark.skipif(has_gpu(), reason="a GPU computes a prompt of this length in one step")
def test_a_long_prompt_is_told_as_it_is_computed_and_can_be_cancelled_on_the_way(engine: Engine) -> None:
    tokens = list(range(100, 1600))
    for task_id in (A, B):
        engine.submit(task_id, tokens, SamplingParams(temperature=0, max_tokens=2))
        told = prefill(step_until(engine, lambda outputs: bool(prefill(outputs))))
        assert 0 < told[0].done < told[0].total == len(tokens)
        if task_id == A:
            engine.cancel([A])
            assert engine.in_flight == 0
    done = [output.done for output in [*told, *prefill(drain(engine))]]
    assert done == sorted(set(done))
    assert len(done) > 2
    assert done[-1] == len(tokens)


def prefill(outputs: Sequence[EngineOutput]) -> list[PrefillOutput]:
    """What is told of prompts."""
    return [output for output in outputs if isinstance(output, PrefillOutput)]


def test_loading_reports_layers_and_closing_may_be_repeated(embedded_model: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = make_engine("vllm", tmp_path)
    made.close()
    made.load(SHARD, embedded_model, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == ((0, 30), (30, 30))
    made.close()
    made.close()
    with pytest.raises(Fatal):
        _ = made.tokenizer
