"""A model over several ranks makes the vectors that it makes in one process, beside requests that decode."""

import numpy as np
import pytest

from exo.domain.shard import Sharding
from tests import builders, tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.ranks.group import greedy, run_ranks
from tests.ranks.program import Outcome, Work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_mlx]
TOKENS = 16
NEAR = 1e-4
TEXTS = [tiny_models.prompt(length, seed) for seed, length in enumerate((7, 1, 40, 7, 3, 150))]
PROMPTS = [tiny_models.prompt(length, seed) for seed, length in enumerate((20, 60), 100)]
REQUESTS = [greedy(prompt, TOKENS, step=2 * number) for number, prompt in enumerate(PROMPTS)]
FAMILIES: dict[Sharding, tuple[str, ...]] = {
    "pipeline": tuple(tiny_models.FAMILIES),
    "tensor": ("llama", "qwen3", "gpt_oss", "deepseek_v3"),
}


@pytest.mark.parametrize("sharding", ["pipeline", "tensor"])
def test_two_ranks_make_the_vectors_of_one_process(tiny_model: TinyModels, sharding: Sharding) -> None:
    families = FAMILIES[sharding]
    parts = {family: builders.shards(tiny_models.shard(family), sharding, 2) for family in families}
    alone = outcomes([[work(tiny_model, family, tiny_models.shard(family)) for family in families]])
    ranks = outcomes([[work(tiny_model, family, parts[family][rank]) for family in families] for rank in range(2)])
    for number, family in enumerate(families):
        for outcome in (by_rank[number] for by_rank in ranks):
            check(family, alone[0][number], outcome)


def work(tiny_model: TinyModels, family: str, shard: builders.Shard) -> Work:
    return Work(folder=tiny_model(family), shard=shard, requests=REQUESTS, texts=TEXTS)


def outcomes(works: list[list[Work]]) -> list[list[Outcome]]:
    return run_ranks(works, slice_tokens=16)


def check(family: str, alone: Outcome, outcome: Outcome) -> None:
    assert (outcome.failures, outcome.tokens) == ([], alone.tokens), family
    assert sorted(outcome.vectors) == list(range(len(TEXTS)))
    for index, vector in outcome.vectors.items():
        np.testing.assert_allclose(vector, alone.vectors[index], atol=NEAR, err_msg=f"{family}, text {index}")
