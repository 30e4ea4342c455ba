"""Greedy output, token for token that of mlx-lm's own `generate_step`: every family, on one rank and on several, one
request at a time and eight together, unknown and known to the prefix cache, with small and with large slices.

`pytest tests/ranks/test_equality.py -v` names each cell. The processes of a placement run once for all of its cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from exo.domain.shard import Shard, Sharding
from exo.models.catalog import embedded
from exo.models.families import TENSOR_FAMILIES
from tests import builders, tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.ranks.group import greedy, run_ranks
from tests.ranks.program import Outcome, Request, Work

pytestmark = [pytest.mark.slow, needs_mlx]
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


def lone_prompts(*lengths: int) -> list[list[int]]:
    """Some that have nothing in common with any other."""
    return [tiny_models.prompt(length, seed) for seed, length in enumerate(lengths, 200)]


@dataclass(frozen=True)
class Asked:
    """What a model is asked: first all together, then again, then one after the other, then these again."""

    together: list[list[int]]
    lone: list[list[int]]
    tokens: int
    """Of each answer."""

    def prompts(self, arrival: str) -> list[list[int]]:
        """Those that come in this way."""
        return self.together if arrival == TOGETHER else self.lone

    def place(self, arrival: str, cache: str) -> slice:
        """Which of `requests` these are."""
        count = len(self.prompts(arrival))
        start = (0 if arrival == TOGETHER else 2 * len(self.together)) + (count if cache == KNOWN else 0)
        return slice(start, start + count)

    def requests(self) -> list[Request]:
        """Of those together, some come while others are computed; the second time some at once, and some when others
        have ended."""
        count = len(self.together)
        staggered = [(2 * number, 0) for number in range(count)]
        again = [(0, count + max(0, number - 4)) for number in range(count)]
        one_by_one = [(0, ended) for ended in range(2 * count, 2 * (count + len(self.lone)))]
        prompts = [*self.together * 2, *self.lone * 2]
        whens = [*staggered, *again, *one_by_one]
        return [greedy(prompt, self.tokens, *when) for prompt, when in zip(prompts, whens, strict=True)]


TOGETHER, LONE = ARRIVALS = ("eight together", "one at a time")
UNKNOWN, KNOWN = CACHES = ("unknown to the cache", "known to the cache")
TINY = Asked(prompts_of((1, 17, 40, 90), 60, (3, 20, 50, 80)), lone_prompts(1, 90, 110), tokens=8)
"""Longer and shorter than a slice of 16."""
LARGE = Asked(prompts_of((1, 5, 17, 20), 20, (3, 5, 9, 12)), lone_prompts(1, 20, 29), tokens=4)
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
Outcomes = Callable[[str, int], dict[str, list[Outcome]]]
"""Of all ranks, by family, for a placement and a size of slices."""


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
    found: dict[tuple[str, int], dict[str, list[Outcome]] | AssertionError] = {}

    def outcome(placement: str, slice_tokens: int) -> dict[str, list[Outcome]]:
        key = placement, slice_tokens
        if key not in found:
            try:
                found[key] = run(placement, slice_tokens, folder)
            except AssertionError as error:
                found[key] = error
        result = found[key]
        if isinstance(result, AssertionError):
            raise result
        return result

    return outcome


def run(placement: str, slice_tokens: int, folder: TinyModels) -> dict[str, list[Outcome]]:
    """What all families that go over these ranks say."""
    ranks = PLACEMENTS[placement]
    families = [family for family in FAMILIES if has(placement, family)]
    parts = {family: builders.shards(whole(family), ranks.sharding, ranks.count) for family in families}

    def work(rank: int, family: str) -> Work:
        return Work(folder=folder(family), shard=parts[family][rank], requests=asked(family).requests())

    works = [[work(rank, family) for family in families] for rank in range(ranks.count)]
    by_rank = run_ranks(works, slice_tokens, PATIENCE)
    return {family: [outcomes[number] for outcomes in by_rank] for number, family in enumerate(families)}


def whole(family: str) -> Shard:
    """The shard that is the whole model."""
    return builders.whole(embedded()) if family == SMOLLM2 else tiny_models.shard(family)


def asked(family: str) -> Asked:
    """What a family is asked."""
    return LARGE if family == SMOLLM2 else TINY


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("slice_tokens", SLICES)
@pytest.mark.parametrize(("family", "placement"), CELLS)
def test_tokens_are_those_of_generate_step(
    family: str, placement: str, slice_tokens: int, arrival: str, cache: str, outcomes: Outcomes, folder: TinyModels
) -> None:
    prompts, place = asked(family).prompts(arrival), asked(family).place(arrival, cache)
    right = [tiny_models.greedy_tokens(folder(family), prompt, asked(family).tokens) for prompt in prompts]
    for outcome in outcomes(placement, slice_tokens)[family]:
        assert outcome.failures == []
        assert outcome.tokens[place] == right
        if cache == KNOWN:
            assert outcome.cached[place] == [len(prompt) - 1 for prompt in prompts]
        elif arrival == LONE:
            assert outcome.cached[place] == [0] * len(prompts)
