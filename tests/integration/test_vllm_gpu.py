"""vLLM on an NVIDIA GPU. What it must give there is in the other tests with vllm in their names, which compute on the
GPU where there is one: here is only that they do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_calls import alone

from exo.domain.sampling import SamplingParams
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine
from tests import builders
from tests.conftest import has_gpu, needs_vllm

pytestmark = [
    needs_vllm,
    pytest.mark.gpu,
    pytest.mark.skipif(not has_gpu(), reason="no NVIDIA GPU: `make test-gpu` runs it on a machine with one"),
    pytest.mark.filterwarnings("ignore"),  # of what vLLM and torch do
]


@pytest.fixture(scope="module")
def engine(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = make_engine("vllm", tmp_path_factory.mktemp("cache"))
    made.load(builders.whole(embedded()), embedded_model, lambda done, total: None)
    yield made
    made.close()


def test_the_weights_are_in_the_gpus_memory_and_answers_are_computed_there(engine: Engine) -> None:
    import torch

    assert torch.cuda.is_available(), "torch was built without CUDA: `make clean`, then `make test-gpu` again"
    assert alone(engine, "What is the capital of France?", SamplingParams(temperature=0, max_tokens=20))
    assert engine.peak_memory_bytes * torch.cuda.device_count() >= embedded().weight_bytes
