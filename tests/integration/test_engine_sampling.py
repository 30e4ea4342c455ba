"""How the MLX engine draws tokens, on small distributions."""

from importlib.util import find_spec

import pytest

from exo.domain.sampling import SamplingParams

if find_spec("mlx") is None:
    pytest.skip("the mlx extra is not installed", allow_module_level=True)

PROBABILITIES = [0.05, 0.5, 0.15, 0.3]


def draws(params: SamplingParams, count: int) -> list[int]:
    import mlx.core as mx

    from exo.runner.engines.mlx.sampling import Samplers

    sampler = Samplers().sampler(params)
    rows = mx.log(mx.array([PROBABILITIES]))
    return [int(sampler(rows).item()) for _ in range(count)]


def test_greedy_requests_share_one_sampler_and_take_the_likeliest() -> None:
    from exo.runner.engines.mlx.sampling import Samplers

    samplers = Samplers()
    assert samplers.sampler(SamplingParams(temperature=0)) is samplers.sampler(SamplingParams(temperature=0, seed=1))
    assert set(draws(SamplingParams(temperature=0), 5)) == {1}


def test_unseeded_requests_share_a_sampler_and_seeded_ones_do_not() -> None:
    from exo.runner.engines.mlx.sampling import Samplers

    samplers = Samplers()
    assert samplers.sampler(SamplingParams(top_p=0.5)) is samplers.sampler(SamplingParams(top_p=0.5))
    assert samplers.sampler(SamplingParams(seed=1)) is not samplers.sampler(SamplingParams(seed=1))


def test_rows_of_one_call_are_drawn_independently() -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.sampling import RandomSampler

    rows = mx.log(mx.array([PROBABILITIES] * 64))
    assert len(set(RandomSampler(1.0, 1.0, seed=1)(rows).tolist())) > 1


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-9, {1}), (0.5, {1}), (0.51, {1, 3}), (0.9, {1, 2, 3}), (1.0, {0, 1, 2, 3})]
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p: float, kept: set[int]) -> None:
    assert set(draws(SamplingParams(top_p=top_p, seed=3), 300)) == kept


def test_frequencies_follow_the_probabilities_and_the_temperature() -> None:
    warm = draws(SamplingParams(seed=5), 2000)
    cold = draws(SamplingParams(temperature=0.5, seed=5), 2000)
    sharpened = 0.5**2 / sum(probability**2 for probability in PROBABILITIES)
    assert warm.count(1) / 2000 == pytest.approx(0.5, abs=0.05)
    assert cold.count(1) / 2000 == pytest.approx(sharpened, abs=0.05)


def test_a_temperature_close_to_zero_is_greedy() -> None:
    assert set(draws(SamplingParams(temperature=1e-6, top_p=0.9, seed=5), 50)) == {1}


def test_a_seed_repeats_its_draws() -> None:
    first, again, other = (draws(SamplingParams(seed=seed), 50) for seed in (2**64 - 1, 2**64 - 1, 1))
    assert first == again != other
