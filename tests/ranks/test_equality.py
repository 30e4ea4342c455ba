"""Greedy output, token for token that of mlx-lm's own `generate_step`: every family, on one rank and on several, one
request at a time and eight together, with an empty and with a full prefix cache, with small and with large slices.

`pytest tests/ranks/test_equality.py -v` names each cell. The processes of a placement run once for all of its cells.
"""

import functools
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from exo.domain.shard import Shard, Sharding
from exo.models.catalog import embedded
from exo.models.families import TENSOR_FAMILIES
from tests import tiny_models
from tests.conftest import TinyModels
from tests.ranks.group import greedy, run_ranks, shards
from tests.ranks.program import Outcome, Request, Work

pytestmark = pytest.mark.slow
SMOLLM2 = "SmolLM2"
FAMILIES = [*tiny_models.FAMILIES, SMOLLM2]
SLICES = (16, 2048)
PATIENCE = 500.0
"""Seconds for all cells of a placement; more than twenty times what a quiet machine takes."""


def prompts_of(lengths: tuple[int, ...], beginning: int, ends: tuple[int, ...]) -> list[list[int]]:
    """Some that have nothing in common, and some that begin alike."""
    apart = [tiny_models.prompt(length, seed) for seed, length in enumerate(lengths)]
    common = tiny_models.prompt(beginning, seed=100)
    return [*apart, *([*common, *tiny_models.prompt(length, seed)] for seed, length in enumerate(ends, 50))]


PROMPTS = prompts_of((1, 17, 40, 90), 60, (3, 20, 50, 80))
"""Longer and shorter than a slice of 16."""
SHORT_PROMPTS = prompts_of((1, 5, 17, 20), 20, (3, 5, 9, 12))
"""For the large model, whose tokens take a hundred times as long."""


@dataclass(frozen=True)
class Ranks:
    """How a model is placed."""

    sharding: Sharding
    count: int


PLACEMENTS = {
    "one rank": Ranks("pipeline", 1),
    "two by layers": Ranks("pipeline", 2),
    "two by slices": Ranks("tensor", 2),
    "three by slices": Ranks("tensor", 3),
}
ARRIVALS = {"one at a time": slice(0, 8, 3), "eight together": slice(0, 8)}
"""Which of the prompts; less than half of them one at a time, which takes longest."""
CACHES = ("empty cache", "full cache")
Outcomes = Callable[[str, int], dict[tuple[str, str], list[Outcome]]]
"""Of all ranks, by family and arrival, for a placement and a size of slices."""


def has(placement: str, family: str) -> bool:
    """Whether a family goes over so many ranks: by slices, where mlx-lm can and the heads divide.

    Over three there is only the one that does not go over two; `test_sharding` has the others.
    """
    ranks = PLACEMENTS[placement]
    if ranks.sharding == "pipeline":
        return True
    return ranks.count == 3 if family == SMOLLM2 else ranks.count == 2 and family in TENSOR_FAMILIES


CELLS = [(family, placement) for placement in PLACEMENTS for family in FAMILIES if has(placement, family)]


@pytest.fixture(scope="module")
def folder(tiny_model: TinyModels, embedded_model: Path) -> TinyModels:
    return lambda family: embedded_model if family == SMOLLM2 else tiny_model(family)


@pytest.fixture(scope="module")
def outcomes(folder: TinyModels) -> Outcomes:
    """Runs each placement once, whether it comes to an end or not."""
    found: dict[tuple[str, int], dict[tuple[str, str], list[Outcome]] | Exception] = {}

    def outcome(placement: str, slice_tokens: int) -> dict[tuple[str, str], list[Outcome]]:
        key = placement, slice_tokens
        if key not in found:
            try:
                found[key] = run(placement, slice_tokens, folder)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found[key] = error
        result = found[key]
        if isinstance(result, Exception):
            raise result
        return result

    return outcome


def run(placement: str, slice_tokens: int, folder: TinyModels) -> dict[tuple[str, str], list[Outcome]]:
    """What all families that go over these ranks say, each arrival with an engine of its own."""
    ranks = PLACEMENTS[placement]
    cells = [(family, arrival) for family in FAMILIES if has(placement, family) for arrival in ARRIVALS]
    parts = {family: shards(whole(family), ranks.sharding, ranks.count) for family, _ in cells}

    def work(rank: int, family: str, arrival: str) -> Work:
        return Work(folder=folder(family), shard=parts[family][rank], requests=requests(family, arrival))

    by_rank = run_ranks([[work(rank, *cell) for cell in cells] for rank in range(ranks.count)], slice_tokens, PATIENCE)
    return {cell: [outcomes[number] for outcomes in by_rank] for number, cell in enumerate(cells)}


def whole(family: str) -> Shard:
    """The shard that is the whole model."""
    if family != SMOLLM2:
        return tiny_models.shard(family)
    return tiny_models.shard("llama").model_copy(update={"card": embedded(), "end_layer": embedded().layers})


def asked(family: str, arrival: str) -> tuple[list[list[int]], int]:
    """The prompts, and the tokens of each answer."""
    prompts, tokens = (SHORT_PROMPTS, 4) if family == SMOLLM2 else (PROMPTS, 8)
    return prompts[ARRIVALS[arrival]], tokens


def requests(family: str, arrival: str) -> list[Request]:
    """All prompts, and then all again, when the cache knows them."""
    prompts, tokens = asked(family, arrival)
    count = len(prompts)
    if arrival == "one at a time":
        arrivals = [(0, ended) for ended in range(2 * count)]
    else:  # while those before them are computed; the second time some at once, and some when others have ended
        arrivals = [*((2 * number, 0) for number in range(count)), *((0, count + max(0, n - 4)) for n in range(count))]
    return [greedy(prompt, tokens, *when) for prompt, when in zip(prompts * 2, arrivals, strict=True)]


@functools.cache
def expected(family: str, folder: Path, arrival: str) -> list[list[int]]:
    """What `generate_step` says to each prompt."""
    prompts, tokens = asked(family, arrival)
    return [tiny_models.greedy_tokens(folder, prompt, tokens) for prompt in prompts]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("slice_tokens", SLICES)
@pytest.mark.parametrize(("family", "placement"), CELLS)
def test_tokens_are_those_of_generate_step(
    family: str, placement: str, slice_tokens: int, arrival: str, cache: str, outcomes: Outcomes, folder: TinyModels
) -> None:
    prompts, _ = asked(family, arrival)
    half = slice(len(prompts)) if cache == "empty cache" else slice(len(prompts), None)
    for outcome in outcomes(placement, slice_tokens)[family, arrival]:
        assert outcome.failures == []
        assert outcome.tokens[half] == expected(family, folder(family), arrival)
        if cache == "full cache":
            assert outcome.cached[half] == [len(prompt) - 1 for prompt in prompts]
