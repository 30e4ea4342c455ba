"""A real model over several ranks: its tokens, and that each rank reads its own weights only."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from exo.domain.ids import NodeId, RunnerId
from exo.domain.shard import Shard, Sharding
from exo.models.catalog import embedded
from tests.ranks.group import greedy, run_ranks, shards
from tests.ranks.program import Outcome, Work
from tests.tiny_models import BLAS_CACHE, greedy_tokens

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("mlx") is None, reason="the mlx extra is not installed"),
]
TOKENS = 24
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Who wrote Hamlet?")
RESIDENT_SHARE = 0.7
"""Of the weights that a rank does not hold, the least part that its resident memory must lack: what it has beside one
process (connections, a trace of the model) takes some of it."""


@pytest.fixture(scope="module")
def whole(embedded_model: Path) -> Shard:
    card = embedded()
    return Shard(
        runner_id=RunnerId("runner"),
        node_id=NodeId("node"),
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.layers,
        sharding="pipeline",
        card=card,
    )


@pytest.fixture(scope="module")
def prompts(embedded_model: Path) -> list[list[int]]:
    from exo.runner.engines.mlx.blas import bind_fast_blas
    from exo.runner.tokenizer import HuggingFaceTokenizer

    bind_fast_blas(BLAS_CACHE)  # before anything imports MLX
    tokenizer = HuggingFaceTokenizer(embedded_model)
    return [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in QUESTIONS]


@pytest.fixture(scope="module")
def alone(embedded_model: Path, whole: Shard, prompts: list[list[int]]) -> Outcome:
    """The model in one process."""
    return run(embedded_model, [whole], prompts)[0]


def run(folder: Path, parts: list[Shard], prompts: list[list[int]]) -> list[Outcome]:
    requests = [greedy(prompt, TOKENS, step=4 * number) for number, prompt in enumerate(prompts)]
    works = [[Work(folder=folder, shard=part, requests=requests)] for part in parts]
    return [outcomes[0] for outcomes in run_ranks(works)]


@pytest.mark.parametrize(("sharding", "ranks", "split"), [("pipeline", 2, (20, 10)), ("tensor", 3, ())])
def test_ranks_give_the_tokens_of_one_process_and_hold_their_own_weights(
    embedded_model: Path,
    whole: Shard,
    prompts: list[list[int]],
    alone: Outcome,
    sharding: Sharding,
    ranks: int,
    split: tuple[int, ...],
) -> None:
    expected = [greedy_tokens(embedded_model, prompt, TOKENS) for prompt in prompts]
    parts = shards(whole, sharding, ranks, split)
    outcomes = run(embedded_model, parts, prompts)
    assert [outcome.failures for outcome in outcomes] == [[]] * ranks
    assert [outcome.tokens for outcome in outcomes] == [expected] * ranks
    for part, outcome in zip(parts, outcomes, strict=True):
        assert alone.resident_bytes - outcome.resident_bytes > RESIDENT_SHARE * elsewhere(embedded_model, part), part


def test_a_division_that_does_not_go_is_refused_with_those_that_do(
    embedded_model: Path, whole: Shard, prompts: list[list[int]]
) -> None:
    outcomes = run(embedded_model, shards(whole, "tensor", 2), prompts)
    for outcome in outcomes:
        (reason,) = outcome.failures
        assert "9 heads" in reason
        assert reason.endswith("do not divide by 2: 3 nodes would do")


def test_layers_that_nobody_or_two_hold_are_refused(
    embedded_model: Path, whole: Shard, prompts: list[list[int]]
) -> None:
    first, second = shards(whole, "pipeline", 2)
    outcomes = run(embedded_model, [first, second.model_copy(update={"end_layer": second.end_layer - 1})], prompts)
    assert all("each of 30 once" in outcome.failures[0] for outcome in outcomes)


def elsewhere(folder: Path, part: Shard) -> int:
    """Bytes of the layers' weights that this rank does not hold."""
    from exo.models.safetensors_file import read_header

    tensors = read_header(folder / "model.safetensors").tensors
    layers = sum(tensor.bytes for tensor in tensors if ".layers." in tensor.name)
    if part.sharding == "tensor":
        return layers * (part.world_size - 1) // part.world_size
    return layers * (part.card.layers - (part.end_layer - part.start_layer)) // part.card.layers
