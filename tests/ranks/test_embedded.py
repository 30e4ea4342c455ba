"""A real model over several ranks: its tokens, and that each rank reads its own weights only."""

from pathlib import Path

import pytest

from exo.domain.shard import Shard
from exo.models.catalog import embedded
from tests import builders
from tests.conftest import needs_mlx
from tests.ranks.group import greedy, run_ranks
from tests.ranks.program import Outcome, Work
from tests.tiny_models import greedy_tokens

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_mlx]
TOKENS = 8
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Who wrote Hamlet?")
RESIDENT_SHARE = 0.7
"""Of the weights that a rank does not hold, the least part that its resident memory must lack: what it has beside one
process (connections, a trace of the model) takes some of it."""

WHOLE = builders.whole(embedded())
BY_LAYERS = builders.shards(WHOLE, "pipeline", 2, (20, 10))
BY_SLICES = builders.shards(WHOLE, "tensor", 3)
INDIVISIBLE = builders.shards(WHOLE, "tensor", 2)
INCOMPLETE = [BY_LAYERS[0], BY_LAYERS[1].model_copy(update={"end_layer": BY_LAYERS[0].start_layer - 1})]
"""The layer between the two is nobody's."""


@pytest.fixture(scope="module")
def prompts(embedded_model: Path) -> list[list[int]]:
    from exo.runner.tokenizer import HuggingFaceTokenizer

    tokenizer = HuggingFaceTokenizer(embedded_model)
    return [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in QUESTIONS]


Ranks = list[list[Outcome]]
"""By rank, what came of each of its works."""


def run(folder: Path, prompts: list[list[int]], *placements: list[Shard]) -> Ranks:
    """The same requests of one placement after the other, in one group of processes."""
    requests = [greedy(prompt, TOKENS, step=4 * number) for number, prompt in enumerate(prompts)]
    return run_ranks(
        [
            [Work(folder=folder, shard=part, requests=requests) for part in parts]
            for parts in zip(*placements, strict=True)
        ]
    )


@pytest.fixture(scope="module")
def alone(embedded_model: Path, prompts: list[list[int]]) -> Outcome:
    """The model in one process."""
    ((outcome,),) = run(embedded_model, prompts, [WHOLE])
    return outcome


@pytest.fixture(scope="module")
def two(embedded_model: Path, prompts: list[list[int]]) -> Ranks:
    """Two ranks with placements that can be and that cannot."""
    return run(embedded_model, prompts, BY_LAYERS, INDIVISIBLE, INCOMPLETE)


def check(folder: Path, prompts: list[list[int]], parts: list[Shard], alone: Outcome, ranks: list[Outcome]) -> None:
    """Every rank has the tokens of one process, and less memory by what it does not hold."""
    expected = [greedy_tokens(folder, prompt, TOKENS) for prompt in prompts]
    for part, outcome in zip(parts, ranks, strict=True):
        assert outcome.failures == []
        assert outcome.tokens == expected
        assert alone.resident_bytes - outcome.resident_bytes > RESIDENT_SHARE * elsewhere(folder, part), part


def test_two_ranks_by_layers_give_the_tokens_of_one_process_and_hold_their_own_weights(
    embedded_model: Path, prompts: list[list[int]], alone: Outcome, two: Ranks
) -> None:
    check(embedded_model, prompts, BY_LAYERS, alone, [works[0] for works in two])


def test_three_ranks_by_slices_give_the_tokens_of_one_process_and_hold_their_own_weights(
    embedded_model: Path, prompts: list[list[int]], alone: Outcome
) -> None:
    three = run(embedded_model, prompts, BY_SLICES)
    check(embedded_model, prompts, BY_SLICES, alone, [works[0] for works in three])


def test_a_division_that_does_not_go_is_refused_with_those_that_do(two: Ranks) -> None:
    for _, indivisible, _ in two:
        (reason,) = indivisible.failures
        assert "9 heads" in reason
        assert reason.endswith("do not divide by 2: 3 nodes would do")


def test_layers_that_nobody_holds_are_refused(two: Ranks) -> None:
    for _, _, incomplete in two:
        (reason,) = incomplete.failures
        assert "each of 30 once" in reason


def elsewhere(folder: Path, part: Shard) -> int:
    """Bytes of the layers' weights that this rank does not hold."""
    from exo.models.safetensors_file import read_header

    tensors = read_header(folder / "model.safetensors").tensors
    layers = sum(tensor.bytes for tensor in tensors if ".layers." in tensor.name)
    if part.sharding == "tensor":
        return layers * (part.world_size - 1) // part.world_size
    return layers * (part.card.layers - (part.end_layer - part.start_layer)) // part.card.layers
