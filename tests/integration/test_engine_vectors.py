"""The MLX engine's vectors are what mlx-lm's own models give, whatever texts are computed together."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from exo.domain.embedding import EmbeddingParams, Pooling
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.runner.engines.base import Engine, FailedOutput, PrefillOutput, TokenOutput, VectorOutput
from exo.runner.engines.mlx.schedule import OVERRUN_PART
from exo.runner.engines.mlx.slices import PASS_TOKENS
from tests import builders, tiny_models
from tests.conftest import needs_mlx

if TYPE_CHECKING:
    from tests.conftest import TinyModels

pytestmark = [needs_mlx, pytest.mark.slow]

Vectors = dict[int, np.ndarray]
LENGTHS = (7, 1, 40, 7, 3, 90)
"""Of texts, in tokens: longer and shorter than the windows of some families, and some of one length."""
NEAR = 1e-4
"""How far a number of a vector of length 1 may be from another: passes of other shapes add up in another order."""
SLICE = 16
SLICE_MOST = (SLICE + PASS_TOKENS) * (OVERRUN_PART + 1) // OVERRUN_PART
"""Tokens, where the rest of a text is computed with the slice rather than left."""


@functools.cache
def direct(folder: Path, tokens: tuple[int, ...], pooling: Pooling) -> np.ndarray:
    """A vector by mlx-lm alone."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    from exo.runner.engines.mlx.sharding.stack import find_stack

    owner: Any = find_stack(_model(folder, load_model)).owner
    hidden = np.array(owner(mx.array([tokens]))[0].astype(mx.float32))
    row = hidden.mean(axis=0) if pooling == "mean" else hidden[-1]
    return row / np.linalg.norm(row)


@functools.cache
def _model(folder: Path, load: Any) -> Any:
    return load(folder)[0]


def engine_of(folder: Path, family: str, slice_tokens: int | None = None) -> Engine:
    from exo.runner.engines.mlx.engine import MlxEngine
    from exo.runner.engines.mlx.slices import SlicePace
    from exo.runner.engines.threads import ThreadShare

    pace = None if slice_tokens is None else SlicePace(least=slice_tokens, most=slice_tokens)
    engine = MlxEngine(tiny_models.BLAS_CACHE, ThreadShare(), pace)
    shard = builders.whole(embedded()) if family == "embedded" else tiny_models.shard(family)
    engine.load(shard, folder, lambda _done, _total: None)
    return engine


def texts_of(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    return [tiny_models.prompt(length, seed + number) for number, length in enumerate(lengths)]


def vectors_of(engine: Engine, texts: Sequence[Sequence[int]], **params: Any) -> Vectors:
    """Each text's, when nothing else is computed."""
    engine.embed(TaskId("texts"), texts, EmbeddingParams(**params))
    found: Vectors = {}
    done = 0
    while engine.in_flight:
        for output in engine.step():
            match output:
                case VectorOutput():
                    found[output.index] = np.frombuffer(output.vector, dtype="<f4")
                    assert output.is_last == (len(found) == len(texts))
                case PrefillOutput():
                    assert done <= output.done <= output.total == sum(map(len, texts))
                    done = output.done
                case _:
                    raise AssertionError(output)
    assert done == sum(map(len, texts))
    return found


def check(folder: Path, engine: Engine, texts: Sequence[Sequence[int]], pooling: Pooling) -> None:
    found = vectors_of(engine, texts, pooling=pooling)
    assert sorted(found) == list(range(len(texts)))
    for index, text in enumerate(texts):
        np.testing.assert_allclose(found[index], direct(folder, tuple(text), pooling), atol=NEAR)
        assert abs(float(np.linalg.norm(found[index])) - 1) < NEAR


@pytest.mark.parametrize("family", [*tiny_models.FAMILIES, *tiny_models.UNBATCHED])
@pytest.mark.parametrize("slice_tokens", [None, SLICE])
def test_texts_of_all_lengths_become_what_each_alone_becomes(
    tiny_model: "TinyModels", family: str, slice_tokens: int | None
) -> None:
    folder = tiny_model(family)
    engine = engine_of(folder, family, slice_tokens)
    check(folder, engine, texts_of(LENGTHS), "mean")
    check(folder, engine, texts_of(LENGTHS), "last")
    engine.close()


@pytest.fixture(scope="module")
def real(embedded_model: Path) -> Engine:
    return engine_of(embedded_model, "embedded")


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_the_real_models_vectors_are_its_hidden_states(real: Engine, embedded_model: Path, pooling: Pooling) -> None:
    sentences = ["The sea was calm.", "In winter birds came, and the keeper of the lighthouse wrote about them.", "A"]
    check(embedded_model, real, [real.tokenizer.encode_text(one) for one in sentences], pooling)


@pytest.fixture
def llama(tiny_model: "TinyModels") -> Engine:
    return engine_of(tiny_model("llama"), "llama", SLICE)


def test_requests_beside_each_other_keep_their_texts_and_their_pooling(llama: Engine, tiny_model: "TinyModels") -> None:
    poolings: dict[TaskId, Pooling] = {TaskId("one"): "mean", TaskId("other"): "last"}
    texts = {name: texts_of((5, 30, 5), seed=10 * number) for number, name in enumerate(poolings)}
    for name, pooling in poolings.items():
        llama.embed(name, texts[name], EmbeddingParams(pooling=pooling))
    while llama.in_flight:
        for output in llama.step():
            if isinstance(output, VectorOutput):
                text = tuple(texts[output.task_id][output.index])
                expected = direct(tiny_model("llama"), text, poolings[output.task_id])
                np.testing.assert_allclose(np.frombuffer(output.vector, dtype="<f4"), expected, atol=NEAR)


def test_who_decodes_gets_a_token_for_each_slice_of_texts_and_the_same_tokens(
    llama: Engine, tiny_model: "TinyModels"
) -> None:
    prompt = tiny_models.prompt(12)
    llama.submit(TaskId("chat"), prompt, SamplingParams(temperature=0, max_tokens=24))
    tokens: list[int] = []
    while not tokens:
        tokens += [output.token for output in llama.step() if isinstance(output, TokenOutput)]
    llama.embed(TaskId("texts"), texts_of((200,)), EmbeddingParams())
    done = 0
    while len(tokens) < 24:
        outputs = llama.step()
        tokens += [output.token for output in outputs if isinstance(output, TokenOutput)]
        ahead = [output.done for output in outputs if isinstance(output, PrefillOutput)]
        assert all(one - done <= SLICE_MOST for one in ahead)
        done = max([done, *ahead])
    assert done == 200
    assert tokens == tiny_models.greedy_tokens(tiny_model("llama"), prompt, 24)


def test_prompts_and_texts_that_wait_are_computed_in_turn(llama: Engine) -> None:
    llama.embed(TaskId("texts"), texts_of((300,)), EmbeddingParams())
    llama.submit(TaskId("chat"), tiny_models.prompt(300, 5), SamplingParams(temperature=0, max_tokens=1))
    turns: list[str] = []
    while llama.in_flight:
        turns += [output.task_id for output in llama.step() if isinstance(output, PrefillOutput)]
    assert {"texts", "chat"} == set(turns[:2]) == set(turns[2:4]) == set(turns[10:12])


def test_a_cancelled_request_gives_nothing_more_and_leaves_nothing(llama: Engine) -> None:
    llama.embed(TaskId("texts"), texts_of((300, 300)), EmbeddingParams())
    assert any(isinstance(output, PrefillOutput) for output in [*llama.step(), *llama.step()])
    llama.cancel([TaskId("texts")])
    assert llama.in_flight == 0
    assert llama.step() == []


@pytest.mark.parametrize(
    ("texts", "params", "code", "param"),
    [
        ([[5], [6] * 8193], {}, "context_length_exceeded", "input[1]"),
        ([[5], []], {}, "empty_prompt", "input[1]"),
        ([[5]], {"dimensions": 8}, "unsupported_parameter", "dimensions"),
        ([[5]], {"dimensions": 97}, "unsupported_parameter", "dimensions"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    llama: Engine, texts: list[list[int]], params: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(Rejected) as refused:
        llama.embed(TaskId("texts"), texts, EmbeddingParams(**params))
    assert (refused.value.code, refused.value.param) == (code, param)
    assert llama.in_flight == 0


def test_an_over_long_text_is_named_with_both_numbers_or_cut_where_that_is_asked_for(
    llama: Engine, tiny_model: "TinyModels"
) -> None:
    long = tiny_models.prompt(8200)
    with pytest.raises(Rejected, match=r"input\[0\].* 8192 tokens.* 8200"):
        llama.embed(TaskId("texts"), [long], EmbeddingParams())


def test_a_model_that_says_so_is_pooled_and_cut_as_it_says(tmp_path: Path) -> None:
    folder = tiny_models.build("llama", tmp_path / "model", matryoshka_dimensions=[8, 32])
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    engine = engine_of(folder, "llama")
    (text,) = texts_of((9,))
    np.testing.assert_allclose(vectors_of(engine, [text])[0], direct(folder, tuple(text), "last"), atol=NEAR)
    short = direct(folder, tuple(text), "last")[:8]
    np.testing.assert_allclose(
        vectors_of(engine, [text], dimensions=8)[0], short / np.linalg.norm(short), atol=10 * NEAR
    )
    with pytest.raises(Rejected, match="8, 32, 96"):
        engine.embed(TaskId("texts"), [text], EmbeddingParams(dimensions=9))
    engine.close()


def test_a_model_whose_vectors_need_more_than_its_layers_is_refused(tmp_path: Path) -> None:
    folder = tiny_models.build("llama", tmp_path / "model")
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    engine = engine_of(folder, "llama")
    with pytest.raises(Rejected, match="Dense") as refused:
        engine.embed(TaskId("texts"), texts_of((3,)), EmbeddingParams())
    assert refused.value.code == "embeddings_not_supported"
    engine.close()


def test_numbers_that_make_no_vector_fail_their_request_alone(tmp_path: Path) -> None:
    import mlx.core as mx

    folder = tiny_models.build("llama", tmp_path / "model")
    weights: Any = mx.load(str(folder / "model.safetensors"))
    weights["model.embed_tokens.weight"][7] = mx.array(float("nan"))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    engine = engine_of(folder, "llama")
    engine.embed(TaskId("bad"), [[5, 6], [7, 8]], EmbeddingParams())
    engine.embed(TaskId("good"), [[5, 6]], EmbeddingParams())
    ends: dict[str, str] = {}
    while engine.in_flight:
        for output in engine.step():
            if isinstance(output, FailedOutput):
                ends[output.task_id] = output.code
            elif isinstance(output, VectorOutput) and output.is_last:
                ends[output.task_id] = "vectors"
    assert ends == {"bad": "engine_error", "good": "vectors"}
    engine.close()
