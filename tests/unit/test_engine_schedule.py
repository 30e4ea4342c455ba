"""The policy of prefill: whose slice comes next, and how large it is."""

from hypothesis import given
from hypothesis import strategies as st

from exo.runner.engines.mlx.schedule import (
    OLDEST_EVERY,
    OVERRUN_PART,
    Slice,
    WaitingPrompt,
    affordable,
    next_slices,
    shared_passes,
)
from exo.runner.engines.mlx.slices import (
    BURST_STALL,
    BUSY_STALL,
    FIRST,
    IDLE_STALL,
    LEAST,
    MOST,
    PASS_TOKENS,
    SlicePace,
    stall,
)


def waiting(key: str, left: int, arrived: int, until_stop: int | None = None) -> WaitingPrompt[str]:
    return WaitingPrompt(key, left, arrived, left if until_stop is None else until_stop)


def taken(prompts: list[WaitingPrompt[str]], budget: int, step: int) -> dict[str, int]:
    return {one.key: one.tokens for one in next_slices(prompts, budget, step)}


def steps_until_done(prompts: dict[str, int], budget: int) -> dict[str, int]:
    """In which step each prompt ends, if all are there from the first on."""
    left = dict(prompts)
    ended: dict[str, int] = {}
    step = 0
    while left:
        step += 1
        queue = [waiting(key, tokens, list(prompts).index(key)) for key, tokens in left.items()]
        for key, tokens in taken(queue, budget, step).items():
            left[key] -= tokens
            if left[key] == 0:
                ended[key] = step
                del left[key]
    return ended


def test_a_short_prompt_passes_a_long_one() -> None:
    assert taken([waiting("long", 4000, 0), waiting("short", 40, 1)], 96, step=1) == {"short": 40, "long": 24}


def test_every_fourth_slice_begins_with_the_oldest() -> None:
    prompts = [waiting("long", 4000, 0), waiting("short", 400, 1)]
    firsts = [next_slices(prompts, 64, step)[0].key for step in range(1, 9)]
    assert firsts == ["short", "short", "short", "long"] * 2


def test_a_long_prompt_ends_although_short_ones_never_cease() -> None:
    left, step = 1024, 0
    while left > 0:
        step += 1
        prompts = [waiting("long", left, 0), *(waiting(f"short-{step}-{n}", 60, step) for n in range(20))]
        left -= taken(prompts, 64 + PASS_TOKENS, step).get("long", 0)
    assert step == OLDEST_EVERY * 1024 // 64


def test_what_a_prompt_leaves_of_a_slice_goes_to_the_next() -> None:
    prompts = [*(waiting(str(number), 20, number) for number in range(3)), waiting("long", 200, 3)]
    assert taken(prompts, 128, step=1) == {"0": 20, "1": 20, "2": 20, "long": 4}


def test_every_pass_has_a_price_so_that_many_tiny_prompts_keep_to_the_time() -> None:
    prompts = [waiting(str(number), 1, number) for number in range(100)]
    assert len(taken(prompts, 4 * (PASS_TOKENS + 1), step=1)) == 4 + 4 // OVERRUN_PART


def test_prompts_that_share_a_pass_pay_for_it_once() -> None:
    prompts = [WaitingPrompt(str(number), 20, number, 20, can_share=True) for number in range(8)]
    assert len(taken(prompts, 4 * (PASS_TOKENS + 20), step=1)) == 4 + 4


def test_a_prompt_that_a_slice_nearly_holds_is_computed_to_its_end() -> None:
    most = 64 + 64 // OVERRUN_PART
    assert taken([waiting("a", most, 0)], 64, step=1) == {"a": most}
    assert taken([waiting("a", most + 1, 0)], 64, step=1) == {"a": 64 - PASS_TOKENS}


def test_a_slice_ends_where_a_state_is_wanted() -> None:
    assert taken([waiting("a", 500, 0, until_stop=30)], 64, step=1) == {"a": 30}


def test_short_prompts_of_like_length_share_a_pass_and_others_do_not() -> None:
    slices = [Slice(str(tokens), tokens, can_share=tokens < 400) for tokens in (20, 25, 500, 300, 22, 305)]
    assert [[one.tokens for one in group] for group in shared_passes(slices)] == [[500], [20, 22, 25], [300, 305]]


def test_only_a_prompt_that_is_computed_to_its_end_may_share() -> None:
    prompts = [WaitingPrompt("short", 40, 0, 40, can_share=True), WaitingPrompt("long", 400, 1, 400, can_share=True)]
    assert [one.can_share for one in next_slices(prompts, 96, step=1)] == [True, False]


@given(st.lists(st.integers(1, 200), max_size=20))
def test_padding_costs_less_than_the_passes_that_it_saves(lengths: list[int]) -> None:
    passes = shared_passes([Slice(number, length, can_share=True) for number, length in enumerate(lengths)])
    assert sorted(one.key for group in passes for one in group) == list(range(len(lengths)))
    for group in passes:
        tokens = [one.tokens for one in group]
        padded = len(tokens) * max(tokens) + PASS_TOKENS
        assert padded <= sum(tokens) + PASS_TOKENS * len(tokens)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.integers(PASS_TOKENS + 1, 2048), st.integers(0, 20))
def test_a_step_always_advances_and_keeps_to_its_budget(lengths: list[int], budget: int, step: int) -> None:
    prompts = [waiting(str(number), length, number) for number, length in enumerate(lengths)]
    found = next_slices(prompts, budget, step)
    assert found
    assert all(one.tokens > 0 for one in found)
    assert sum(one.tokens for one in found) <= budget + budget // OVERRUN_PART
    assert len({one.key for one in found}) == len(found)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(PASS_TOKENS + LEAST, 512))
def test_the_shortest_prompt_waits_for_no_more_than_its_share(lengths: list[int], budget: int) -> None:
    prompts = {str(number): length for number, length in enumerate(lengths)}
    shortest = min(prompts, key=lambda key: prompts[key])
    own_slices = -(-prompts[shortest] // (budget - PASS_TOKENS))
    assert steps_until_done(prompts, budget)[shortest] <= own_slices + own_slices // (OLDEST_EVERY - 1) + 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(17, 2100))
def test_what_is_affordable_keeps_to_the_budget_with_all_its_padding(lengths: list[int], budget: int) -> None:
    queue = [WaitingPrompt(str(at), left, at, left, can_share=True) for at, left in enumerate(lengths)]
    slices = next_slices(queue, budget, step=1)
    kept = affordable(slices, budget)
    assert kept == slices[: len(kept)]
    price = sum(PASS_TOKENS + len(group) * max(one.tokens for one in group) for group in shared_passes(kept))
    assert len(kept) == 1 or price <= budget + budget // OVERRUN_PART


def test_texts_of_one_length_are_all_affordable() -> None:
    queue = [WaitingPrompt(str(at), 10, at, 10, can_share=True) for at in range(40)]
    slices = next_slices(queue, 200, step=1)
    assert len(affordable(slices, 200)) == len(slices) > 15


def test_the_first_slice_is_small_and_measured_ones_keep_to_the_time() -> None:
    pace = SlicePace()
    assert pace.budget(decoding=1, lefts=[4000]) == FIRST + PASS_TOKENS
    for _ in range(8):
        pace.took(passes=1, tokens=100 - PASS_TOKENS, seconds=1.0)
    assert pace.budget(decoding=2, lefts=[4000]) == LEAST + PASS_TOKENS
    assert pace.budget(decoding=0, lefts=[4000]) == int(100 * IDLE_STALL)


def test_a_small_slice_does_not_make_the_next_ones_small() -> None:
    """As if a pass cost 0.06 s and a token 4 ms: a quarter of a second is for 47 tokens, whatever came before."""
    pace = SlicePace()
    tokens = LEAST
    for _ in range(8):
        pace.took(passes=1, tokens=tokens, seconds=0.06 + 0.004 * tokens)
        tokens = pace.budget(decoding=1, lefts=[4000]) - PASS_TOKENS
    assert abs(tokens - (BUSY_STALL - 0.06) / 0.004) < 2


def test_slices_stay_within_their_bounds() -> None:
    slow, fast = SlicePace(), SlicePace()
    slow.took(passes=1, tokens=64, seconds=100.0)
    fast.took(passes=1, tokens=2048, seconds=0.001)
    for decoding in (0, 1):
        assert slow.budget(decoding, lefts=[4000]) == LEAST + PASS_TOKENS
        assert fast.budget(decoding, lefts=[4000]) == MOST + PASS_TOKENS


def test_where_more_wait_than_decode_they_stand_still_for_longer_but_no_longer_than_when_idle() -> None:
    assert stall(decoding=8, waiting=1, short=0) == stall(decoding=1, waiting=1, short=1) == BUSY_STALL
    assert stall(decoding=2, waiting=6, short=0) == 3 * BUSY_STALL
    assert stall(decoding=1, waiting=31, short=0) == IDLE_STALL == stall(decoding=0, waiting=1, short=0)
    assert stall(decoding=0, waiting=31, short=0) == BURST_STALL


def test_several_prompts_that_soon_decode_may_hold_up_others_for_longer() -> None:
    assert stall(decoding=8, waiting=3, short=3) == 3 * BUSY_STALL
    pace = SlicePace()
    pace.took(passes=1, tokens=400 - PASS_TOKENS, seconds=1.0)
    assert pace.budget(decoding=8, lefts=[40, 40, 4000]) == int(400 * 2 * BUSY_STALL)


def test_a_pace_can_be_fixed() -> None:
    pace = SlicePace(least=16, most=16)
    pace.took(passes=1, tokens=16, seconds=1e-6)
    assert pace.budget(decoding=0, lefts=[4000]) == 16 + PASS_TOKENS


def test_a_busy_machine_shows_within_a_few_slices() -> None:
    pace = SlicePace()
    pace.took(passes=1, tokens=256, seconds=0.2)
    before = pace.budget(decoding=1, lefts=[4000])
    for _ in range(3):
        pace.took(passes=1, tokens=before - PASS_TOKENS, seconds=2.0)
    assert pace.budget(decoding=1, lefts=[4000]) < before / 4


def test_a_short_rest_of_a_prompt_tells_little_of_the_speed() -> None:
    pace = SlicePace()
    pace.took(passes=1, tokens=160, seconds=0.5)
    before = pace.budget(decoding=1, lefts=[4000])
    pace.took(passes=1, tokens=1, seconds=0.05)
    assert pace.budget(decoding=1, lefts=[4000]) > 0.9 * before
