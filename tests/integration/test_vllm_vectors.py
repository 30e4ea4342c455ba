"""A model that was trained to make vectors gives the same ones on vLLM as on MLX."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from engine_calls import drain

from exo.domain.embedding import EmbeddingParams, Pooling
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import EngineName
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, PrefillOutput, VectorOutput
from exo.runner.main import warm_up
from tests import builders, tiny_models
from tests.conftest import needs_mlx, needs_vllm

pytestmark = [needs_vllm, needs_mlx, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of vLLM and torch

LENGTHS = (7, 1, 40, 300, 7)
"""Of texts, in tokens; one is longer than what vLLM computes at once on a CPU."""
NEAR = 1e-4
"""How far a number of a vector of length 1 may be from another: each engine adds in its own order."""
A, B = TaskId("a"), TaskId("b")


@pytest.fixture(scope="module")
def engines(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[EngineName, Engine]]:
    folder = trained(embedded_model, tmp_path_factory.mktemp("trained"))
    names: tuple[EngineName, ...] = ("mlx", "vllm")
    made = {name: make_engine(name, tmp_path_factory.mktemp(name)) for name in names}
    for one in made.values():
        one.load(builders.whole(embedded()), folder, lambda done, total: None)
    yield made
    for one in made.values():
        one.close()


def trained(model: Path, folder: Path) -> Path:
    """The embedded model, with what sentence-transformers writes beside one that was trained to make vectors."""
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    modules[1]["path"] = "1_Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


def texts(seed: int = 0) -> list[list[int]]:
    return [tiny_models.prompt(length, seed + number) for number, length in enumerate(LENGTHS)]


def vectors(engine: Engine, asked: Sequence[Sequence[int]], params: EmbeddingParams) -> list[bytes]:
    """Each text's."""
    engine.embed(A, asked, params)
    given = [output for output in drain(engine) if isinstance(output, VectorOutput)]
    assert [output.is_last for output in given] == [False] * (len(asked) - 1) + [True]
    return [output.vector for output in sorted(given, key=lambda output: output.index)]


@pytest.mark.parametrize("pooling", [None, "mean", "last"])
def test_the_vectors_are_those_of_mlx(engines: Mapping[EngineName, Engine], pooling: Pooling | None) -> None:
    mlx, vllm = (vectors(one, texts(), EmbeddingParams(pooling=pooling)) for one in engines.values())
    for one, other in zip(mlx, vllm, strict=True):
        numbers = [np.frombuffer(vector, dtype="<f4") for vector in (one, other)]
        assert np.linalg.norm(numbers[1]) == pytest.approx(1, abs=1e-5)
        assert np.abs(numbers[0] - numbers[1]).max() < NEAR


def test_two_requests_share_steps_and_each_tells_how_far_it_is(engines: Mapping[EngineName, Engine]) -> None:
    engine = engines["vllm"]
    alone = vectors(engine, texts(5), EmbeddingParams())
    engine.embed(A, texts(5), EmbeddingParams())
    engine.embed(B, texts(9), EmbeddingParams(pooling="last"))
    outputs = drain(engine)
    given = {
        output.index: output.vector for output in outputs if isinstance(output, VectorOutput) and output.task_id == A
    }
    for index, vector in given.items():
        difference = np.frombuffer(vector, dtype="<f4") - np.frombuffer(alone[index], dtype="<f4")
        assert np.abs(difference).max() < NEAR
    done = [output.done for output in outputs if isinstance(output, PrefillOutput) and output.task_id == B]
    assert done == sorted(done)
    assert done[-1] == sum(LENGTHS)


def test_a_cancelled_request_gives_no_vector(engines: Mapping[EngineName, Engine]) -> None:
    engine = engines["vllm"]
    engine.embed(A, texts(), EmbeddingParams())
    engine.embed(B, texts()[:1], EmbeddingParams())
    engine.cancel([A])
    assert engine.in_flight == 1
    assert {output.task_id for output in drain(engine)} == {B}


def test_what_it_does_not_do_is_refused(engines: Mapping[EngineName, Engine]) -> None:
    engine = engines["vllm"]
    for asked, params, code in (
        ([[]], EmbeddingParams(), "empty_prompt"),
        ([[5] * 9000], EmbeddingParams(), "context_length_exceeded"),
        ([[5]], EmbeddingParams(dimensions=100), "unsupported_parameter"),
        ([[2**70]], EmbeddingParams(), "invalid_request"),
    ):
        with pytest.raises(Rejected) as refused:
            engine.embed(A, asked, params)
        assert refused.value.code == code
        assert engine.in_flight == 0
    with pytest.raises(Rejected, match="does not write"):
        engine.submit(A, [5], SamplingParams())
    engine.embed(A, [[5]], EmbeddingParams())
    with pytest.raises(Rejected) as twice:
        engine.embed(A, [[5]], EmbeddingParams())
    assert twice.value.code == "duplicate_task"
    assert drain(engine)


def test_a_runner_warms_such_a_model_up(engines: Mapping[EngineName, Engine]) -> None:
    assert warm_up(engines["vllm"]) == 0
    assert engines["vllm"].in_flight == 0
