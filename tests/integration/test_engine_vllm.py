"""The vLLM engine with a real model: SmolLM2-135M-Instruct in float32."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from engine_contract import Reference
from model_contract import ModelContract

from exo.errors import Fatal
from exo.models.catalog import embedded
from exo.node.container import available_memory
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine
from tests import builders
from tests.conftest import needs_vllm

pytestmark = [needs_vllm, pytest.mark.filterwarnings("ignore")]  # of what vLLM and torch do

SHARD = builders.whole(embedded())


@pytest.fixture(scope="module")
def loaded(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Its weights seem to leave 512 MiB, half of which hold the keys and values of some 5,800 tokens: a process has one
    vLLM at a time, so this one stands for `tight` too."""
    made = make_engine("vllm", tmp_path_factory.mktemp("cache"))
    card = embedded().model_copy(update={"weight_bytes": available_memory() - 2**29})
    made.load(builders.whole(card), embedded_model, lambda done, total: None)
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
