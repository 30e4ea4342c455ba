"""How the MLX engine chooses tokens: draws, penalties and seeds on small distributions."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from exo.domain.ids import TaskId
from exo.domain.sampling import INTEGER_MOST, SamplingParams
from exo.errors import Rejected
from tests.conftest import needs_mlx

pytestmark = needs_mlx


PROBABILITIES = [0.05, 0.5, 0.15, 0.3]
PROMPT = [2, 2, 3]
TASK = TaskId("task")


def choose(rows: Sequence[tuple[SamplingParams, TaskId]], steps: int, logits: object = None) -> list[list[int]]:
    """What a batch of requests chooses, row by row, called as BatchGenerator calls; each step has the same logits."""
    import mlx.core as mx

    from exo.runner.engines.mlx.sampling import Samplers

    samplers = Samplers(lambda token: bytes([65 + token]))
    choices = [samplers.for_request(task_id, params, len(PROMPT)) for params, task_id in rows]
    given_logits = mx.log(mx.array([PROBABILITIES] * len(rows))) if logits is None else mx.array(logits)
    answers: list[list[int]] = [[] for _ in rows]
    for _ in range(steps):
        processed: list[mx.array] = []
        for row, choice in enumerate(choices):
            one, context = given_logits[row : row + 1], mx.array([*PROMPT, *answers[row]], dtype=mx.int32)
            for processor in choice.processors:
                one = processor(context, one)
            processed.append(one)
        logprobs = mx.concatenate(processed)
        logprobs = logprobs - mx.logsumexp(logprobs, axis=-1, keepdims=True)
        if all(choice.sampler is choices[0].sampler for choice in choices):
            tokens = choices[0].sampler(logprobs)
        else:
            tokens = mx.concatenate([choice.sampler(logprobs[row : row + 1]) for row, choice in enumerate(choices)])
        for answer, token in zip(answers, tokens.tolist(), strict=True):
            answer.append(token)
    return answers


def alone(params: SamplingParams, count: int, task_id: TaskId = TASK) -> list[int]:
    return choose([(params, task_id)], count)[0]


@pytest.mark.parametrize(
    "extreme",
    [
        {"repetition_penalty": 0.01, "repetition_context": INTEGER_MOST},
        {"repetition_penalty": 10, "repetition_context": 1},
        {"top_k": INTEGER_MOST, "top_p": 5e-324},
        {"min_p": 5e-324, "temperature": 5e-324},
        {"presence_penalty": -2, "frequency_penalty": -2, "logit_bias": ((INTEGER_MOST, -100),)},
    ],
)
def test_every_bound_of_a_parameter_can_be_used(extreme: dict[str, object]) -> None:
    assert len(alone(SamplingParams.model_validate({"seed": 3, **extreme}), 5)) == 5


def test_greedy_takes_the_likeliest() -> None:
    assert set(alone(SamplingParams(temperature=0), 5)) == {1}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-9, {1}), (0.5, {1}), (0.51, {1, 3}), (0.9, {1, 2, 3}), (1.0, {0, 1, 2, 3})]
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p: float, kept: set[int]) -> None:
    assert set(alone(SamplingParams(top_p=top_p, seed=3), 300)) == kept


@pytest.mark.parametrize(
    ("top_k", "kept"), [(1, {1}), (2, {1, 3}), (3, {1, 2, 3}), (0, {0, 1, 2, 3}), (99, {0, 1, 2, 3})]
)
def test_top_k_keeps_so_many(top_k: int, kept: set[int]) -> None:
    assert set(alone(SamplingParams(top_k=top_k, seed=3), 300)) == kept


@pytest.mark.parametrize(("min_p", "kept"), [(1, {1}), (0.5, {1, 3}), (0.2, {1, 2, 3}), (0.05, {0, 1, 2, 3})])
def test_min_p_is_a_share_of_the_likeliest(min_p: float, kept: set[int]) -> None:
    assert set(alone(SamplingParams(min_p=min_p, seed=3), 300)) == kept


def test_frequencies_follow_the_probabilities_and_the_temperature() -> None:
    warm = alone(SamplingParams(seed=5), 2000)
    cold = alone(SamplingParams(temperature=0.5, seed=5), 2000)
    filtered = alone(SamplingParams(top_k=2, seed=5), 2000)
    sharpened = 0.5**2 / sum(probability**2 for probability in PROBABILITIES)
    assert warm.count(1) / 2000 == pytest.approx(0.5, abs=0.04)
    assert warm.count(0) / 2000 == pytest.approx(0.05, abs=0.02)
    assert cold.count(1) / 2000 == pytest.approx(sharpened, abs=0.04)
    assert filtered.count(3) / 2000 == pytest.approx(0.3 / 0.8, abs=0.04)


@pytest.mark.parametrize("temperature", [1e-40, 1e-6, 1e-4])
def test_a_temperature_close_to_zero_is_greedy(temperature: float) -> None:
    assert set(alone(SamplingParams(temperature=temperature, top_p=0.9, seed=5), 50)) == {1}


def test_a_seed_repeats_its_draws_and_another_does_not() -> None:
    first, again, other = (alone(SamplingParams(seed=seed), 50) for seed in (2**64 - 1, 2**64 - 1, 1))
    assert first == again != other


def test_without_a_seed_the_task_is_the_seed() -> None:
    assert alone(SamplingParams(), 50) == alone(SamplingParams(), 50) != alone(SamplingParams(), 50, TaskId("other"))


params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 3]),
    min_p=st.sampled_from([0.0, 0.1]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.none() | st.integers(0, 2**64 - 1),
)


@settings(max_examples=50)
@given(st.lists(params_strategy, min_size=1, max_size=6))
def test_what_runs_beside_a_request_does_not_change_it(batch: list[SamplingParams]) -> None:
    rows = [(params, TaskId(f"task-{number}")) for number, params in enumerate(batch)]
    assert choose(rows, 6) == [alone(params, 6, task_id) for params, task_id in rows]


@settings(max_examples=60)
@given(
    arrays(np.float32, (2, 30), elements=st.floats(-8, 8, width=16)),
    st.floats(0.1, 2),
    st.integers(0, 40),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_filters_keep_what_their_definitions_say(
    logits: "np.ndarray[tuple[int, int], np.dtype[np.float32]]",
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.drawing import Draw, filtered

    tokens, values = filtered(mx.array(logits), [Draw(1, temperature, top_k, top_p, min_p)] * 2)
    for row in range(2):
        probabilities = np.exp(logits[row].astype(np.float64) / temperature)
        probabilities /= probabilities.sum()
        kept = [token for token, value in zip(tokens[row].tolist(), values[row].tolist(), strict=True) if value > -1e30]
        ranked = np.sort(probabilities)[::-1]
        assert np.allclose(probabilities[kept], ranked[: len(kept)], rtol=1e-4), "not the likeliest"
        by_rank = [top_k or 30, min(30, int(np.sum(np.cumsum(ranked) < top_p - 1e-5)) + 1)]
        by_share = int(np.sum(ranked >= min_p * ranked[0] * (1 - 1e-5)))
        slack = [
            int(np.sum(np.abs(np.cumsum(ranked) - top_p) < 2e-5)),
            int(np.sum(np.isclose(ranked, min_p * ranked[0], rtol=1e-4))),
        ]
        assert abs(len(kept) - min(*by_rank, by_share)) <= sum(slack)


@settings(max_examples=60)
@given(
    arrays(np.float32, 12, elements=st.floats(-8, 8, width=16)),
    st.lists(st.integers(0, 11), max_size=30),
    st.builds(
        SamplingParams,
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        repetition_penalty=st.sampled_from([0.5, 1.0, 1.7]),
        repetition_context=st.integers(1, 10),
        logit_bias=st.just(()) | st.just(((3, 2.5), (7, -100.0))),
    ),
)
def test_penalties_are_those_of_the_formula(
    logits: "np.ndarray[tuple[int], np.dtype[np.float32]]", generated: list[int], params: SamplingParams
) -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.penalties import penalties

    context = [*PROMPT, *generated]
    expected = logits.astype(np.float64)
    for token, bias in params.logit_bias:
        expected[token] += bias
    for token in set(context[-params.repetition_context :]):
        factor = params.repetition_penalty
        expected[token] *= factor if expected[token] < 0 else 1 / factor
    for token in set(generated):
        expected[token] -= generated.count(token) * params.frequency_penalty + params.presence_penalty
    found = mx.array(logits)[None]
    for processor in penalties(params, len(PROMPT)):
        found = processor(mx.array(context, dtype=mx.int32), found)
    assert np.allclose(np.array(found[0]), expected, atol=1e-3)


def test_logprobs_are_those_of_the_model_whatever_changed_the_logits() -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.sampling import Samplers

    params = SamplingParams(logprobs=2, logit_bias=((0, 50.0),))
    choice = Samplers(lambda token: bytes([65 + token])).for_request(TASK, params, len(PROMPT))
    for step in range(2):
        logits = mx.log(mx.array([PROBABILITIES]))
        for processor in choice.processors:
            logits = processor(mx.array([*PROMPT, *[0] * step]), logits)
        assert choice.sampler(logits).tolist() == [0]
    assert choice.teller is not None
    told = choice.teller.tell(0, logits[0])
    assert (told.token, told.bytes, told.logprob) == ("A", (65,), pytest.approx(np.log(0.05), abs=1e-5))
    assert [(one.token, one.bytes) for one in told.top_logprobs] == [("B", (66,)), ("D", (68,))]
    assert [one.logprob for one in told.top_logprobs] == pytest.approx(np.log([0.5, 0.3]), abs=1e-5)


def test_what_is_no_whole_character_is_told_by_its_bytes() -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.logprobs import Teller

    teller = Teller(1, lambda token: b"\xf0\x9f", mx.new_stream(mx.default_device()), is_changed=False)
    told = teller.tell(0, mx.array([0.0, -mx.inf]))
    assert (told.token, told.bytes, told.logprob) == ("\ufffd", (0xF0, 0x9F), 0.0)
    assert teller.tell(1, mx.array([0.0, -mx.inf])).logprob == -9999


def test_all_logprobs_together_are_one() -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.logprobs import rank

    chosen, top = rank(mx.array([3.0, 1.0, 2.0]), 1, 3)
    assert sum(np.exp(value) for _, value in top) == pytest.approx(1, abs=1e-5)
    assert top[2] == (1, chosen)
    assert [token for token, _ in rank(mx.array([3.0, 3.0, 2.0]), 1, 2)[1]] == [0, 1]
    assert rank(mx.array([3.0, 3.0, 2.0]), 1, 0)[1] == []


def test_a_bias_for_a_token_that_the_model_does_not_have_is_refused() -> None:
    from exo.runner.engines.admission import check_biases

    check_biases(SamplingParams(logit_bias=((9, 1.0),)), 10)
    with pytest.raises(Rejected) as refusal:
        check_biases(SamplingParams(logit_bias=((10, 1.0),)), 10)
    assert refusal.value.param == "logit_bias"
