"""The vLLM engine with a real model: SmolLM2-135M-Instruct in float32."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from engine_contract import EngineContract, Reference

from exo.errors import Fatal
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine
from tests import builders
from tests.conftest import needs_vllm

pytestmark = [needs_vllm, pytest.mark.filterwarnings("ignore")]  # of what vLLM and torch do

SHARD = builders.whole(embedded())


@pytest.fixture(scope="module")
def loaded(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = make_engine("vllm", tmp_path_factory.mktemp("cache"))
    made.load(SHARD, embedded_model, lambda done, total: None)
    yield made
    made.close()


@pytest.fixture
def engine(loaded: Engine) -> Engine:
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


class TestVllmEngine(EngineContract):
    """All of the contract."""


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
