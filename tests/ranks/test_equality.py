"""Greedy output, token for token that of mlx-lm's own `generate_step`: every family, on one rank and on several, one
request at a time and eight together, with an empty and with a full prefix cache, with small and with large slices.

`pytest tests/ranks/test_equality.py -v` names each cell. The processes of a placement run once for all of its cells.
"""

import functools
from collections.abc import Callable, Iterator
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

SMOLLM2 = "SmolLM2"
FAMILIES = [*tiny_models.FAMILIES, SMOLLM2]
SLICES = (16, 2048)
BEGINNING = tiny_models.prompt(60, seed=100)
PROMPTS = [
    *(tiny_models.prompt(length, seed) for seed, length in enumerate((1, 17, 40, 90))),
    *([*BEGINNING, *tiny_models.prompt(length, seed)] for seed, length in enumerate((3, 20, 50, 80), 50)),
]
"""Four that have nothing in common, and four with a common beginning; longer and shorter than a slice of 16."""
APART = 60
"""Steps between two requests that are to be alone: more than one takes."""


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


def alone(count: int) -> list[int]:
    """The steps at which requests come one after the other."""
    return [number * APART for number in range(count)]


def together(count: int) -> list[int]:
    """The steps at which requests come while those before them are computed."""
    return [number * 2 for number in range(count)]


ARRIVALS: dict[str, Callable[[int], list[int]]] = {"one at a time": alone, "eight together": together}
CACHES = ("empty cache", "full cache")
Outcomes = Callable[[str, int], dict[tuple[str, str], list[Outcome]]]
"""Of all ranks, by family and arrival, for a placement and a size of slices."""


def has(placement: str, family: str) -> bool:
    """Whether a family goes over so many ranks: by slices, where mlx-lm can and the heads divide."""
    ranks = PLACEMENTS[placement]
    if ranks.sharding == "pipeline":
        return True
    return ranks.count == 3 if family == SMOLLM2 else family in TENSOR_FAMILIES


CELLS = [(family, placement) for placement in PLACEMENTS for family in FAMILIES if has(placement, family)]


@pytest.fixture(scope="module")
def folder(tiny_model: TinyModels, embedded_model: Path) -> TinyModels:
    return lambda family: embedded_model if family == SMOLLM2 else tiny_model(family)


@pytest.fixture(scope="module")
def outcomes(folder: TinyModels) -> Iterator[Outcomes]:
    @functools.cache
    def run(placement: str, slice_tokens: int) -> dict[tuple[str, str], list[Outcome]]:
        ranks = PLACEMENTS[placement]
        cells = [(family, arrival) for family in FAMILIES if has(placement, family) for arrival in ARRIVALS]
        parts = {family: shards(whole(family), ranks.sharding, ranks.count) for family, _ in cells}
        works = [
            [
                Work(folder=folder(family), shard=parts[family][rank], requests=requests(family, arrival))
                for family, arrival in cells
            ]
            for rank in range(ranks.count)
        ]
        found = run_ranks(works, slice_tokens)
        return {cell: [by_rank[number] for by_rank in found] for number, cell in enumerate(cells)}

    yield run
    run.cache_clear()


def whole(family: str) -> Shard:
    """The shard that is the whole model."""
    if family != SMOLLM2:
        return tiny_models.shard(family)
    return tiny_models.shard("llama").model_copy(update={"card": embedded(), "end_layer": embedded().layers})


def tokens_of(family: str) -> int:
    """Tokens of each answer. Those of the large model take a hundred times as long."""
    return 4 if family == SMOLLM2 else 12


def requests(family: str, arrival: str) -> list[Request]:
    """All prompts, and then all again, when the cache knows them."""
    steps = ARRIVALS[arrival](len(PROMPTS))
    again = [step + APART * len(PROMPTS) for step in steps]
    arrivals = zip(PROMPTS * 2, [*steps, *again], strict=True)
    return [greedy(prompt, tokens_of(family), step) for prompt, step in arrivals]


@functools.cache
def expected_of(family: str, folder: Path) -> list[list[int]]:
    """What `generate_step` says to each prompt."""
    return [tiny_models.greedy_tokens(folder, prompt, tokens_of(family)) for prompt in PROMPTS]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("slice_tokens", SLICES)
@pytest.mark.parametrize(("family", "placement"), CELLS)
def test_tokens_are_those_of_generate_step(
    family: str, placement: str, slice_tokens: int, arrival: str, cache: str, outcomes: Outcomes, folder: TinyModels
) -> None:
    half = slice(len(PROMPTS)) if cache == "empty cache" else slice(len(PROMPTS), None)
    for outcome in outcomes(placement, slice_tokens)[family, arrival]:
        assert outcome.failures == []
        assert outcome.tokens[half] == expected_of(family, folder(family))
        if cache == "full cache":
            assert outcome.cached[half] == [len(prompt) - 1 for prompt in PROMPTS]
