"""A model over three ranks says, token for token, what it says in one process by mlx-lm's own `generate_step`.

`test_equality` has one and two ranks, and the embedded model over three.
"""

import pytest

from exo.domain.shard import Sharding
from tests import builders, tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.ranks.group import greedy, run_ranks
from tests.ranks.program import Outcome, Work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_mlx]
RANKS = 3
TOKENS = 16
PROMPTS = [tiny_models.prompt(length, seed) for seed, length in enumerate((40, 7, 90, 3, 55, 20, 33, 64))]
REQUESTS = [greedy(prompt, TOKENS, step=3 * number) for number, prompt in enumerate(PROMPTS)]
"""They come one after the other, while those before them decode."""
TENSOR = ("llama", "qwen3", "gpt_oss", "deepseek_v3")


def test_three_uneven_pipeline_ranks_give_the_tokens_of_one_process(tiny_model: TinyModels) -> None:
    """Families that mlx-lm has a pipeline for (deepseek_v3, qwen3_next), and all others."""
    check(tiny_model, tuple(tiny_models.FAMILIES), "pipeline", (1, 1, 4))


def test_three_tensor_ranks_give_the_tokens_of_one_process(tiny_model: TinyModels) -> None:
    check(tiny_model, TENSOR, "tensor")


@pytest.mark.parametrize("sharding", ["pipeline", "tensor"])
def test_a_request_whose_token_cannot_be_chosen_ends_no_other(tiny_model: TinyModels, sharding: Sharding) -> None:
    """Two of eight break: one on its first token, one while others decode beside it."""
    breaks = {2: 5, 4: 0}
    requests = [one.model_copy(update={"breaks_at": breaks.get(number)}) for number, one in enumerate(REQUESTS)]
    folder = tiny_model("llama")
    parts = builders.shards(tiny_models.shard("llama"), sharding, 2)
    outcomes = run_ranks([[Work(folder=folder, shard=part, requests=requests)] for part in parts])
    for (outcome,) in outcomes:
        assert sorted(outcome.failures) == [f"{number}: engine_error: ValueError: no choice" for number in breaks]
        for number, tokens in enumerate(outcome.tokens):
            assert tokens == tiny_models.greedy_tokens(folder, PROMPTS[number], TOKENS)[: len(tokens)]
            assert len(tokens) == {2: 4, 4: 0}.get(number, TOKENS)


def check(tiny_model: TinyModels, families: tuple[str, ...], sharding: Sharding, split: tuple[int, ...] = ()) -> None:
    """Eight requests, staggered, on each family."""
    parts = {family: builders.shards(tiny_models.shard(family), sharding, RANKS, split) for family in families}
    works = [
        [Work(folder=tiny_model(family), shard=parts[family][rank], requests=REQUESTS) for family in families]
        for rank in range(RANKS)
    ]
    outcomes = run_ranks(works)
    for number, family in enumerate(families):
        expected = [tiny_models.greedy_tokens(tiny_model(family), prompt, TOKENS) for prompt in PROMPTS]
        check_outcomes(family, expected, [by_rank[number] for by_rank in outcomes])


def check_outcomes(family: str, expected: list[list[int]], outcomes: list[Outcome]) -> None:
    """Every rank has the tokens of the one process."""
    for rank, outcome in enumerate(outcomes):
        assert outcome.failures == [], (family, rank)
        assert outcome.tokens == expected, (family, rank)
