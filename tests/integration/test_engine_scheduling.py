"""The scheduler on tiny models: the same tokens as mlx-lm's own generation, whatever is shared, sliced or cancelled."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from exo.domain.ids import TaskId
from tests import tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.integration.scheduling import (
    Seen,
    alone,
    drain,
    expected,
    model_of,
    scheduler_of,
    step_until,
    submit,
)

pytestmark = needs_mlx

SHARED = tiny_models.prompt(300, seed=7)
PROMPTS = {
    "first": [*SHARED, *tiny_models.prompt(20, seed=1)],
    "same beginning": [*SHARED, *tiny_models.prompt(60, seed=2)],
    "one token": tiny_models.prompt(1, seed=3),
    "another": tiny_models.prompt(40, seed=4),
    "beginning of the beginning": SHARED[:100],
    "beginning alone": SHARED,
    "same again": [*SHARED, *tiny_models.prompt(20, seed=1)],
    "long": [*SHARED, *tiny_models.prompt(250, seed=5)],
}


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_staggered_requests_get_the_tokens_of_mlx_lm_from_an_empty_and_from_a_full_cache(
    family: str, tiny_model: TinyModels
) -> None:
    """Prompts of hundreds of tokens, with beginnings in common; other sizes of slices are in `test_equality`."""
    folder = tiny_model(family)
    right = {name: expected(folder, prompt) for name, prompt in PROMPTS.items()}
    scheduler = scheduler_of(folder, slice_tokens=64)
    for is_full in (False, True):
        seen = Seen()
        for name, prompt in PROMPTS.items():
            submit(scheduler, name, prompt)
            seen.take(scheduler.step())
            seen.take(scheduler.step())
        assert drain(scheduler, seen).tokens == right
        assert (seen.cached["first"] == len(PROMPTS["first"]) - 1) == is_full
    scheduler.close()


@pytest.mark.parametrize("family", ["llama", "qwen3", "deepseek_v3"])
def test_short_prompts_that_come_together_are_computed_in_one_step(family: str, tiny_model: TinyModels) -> None:
    folder = tiny_model(family)
    scheduler = scheduler_of(folder, slice_tokens=256)
    prompts = {f"of {length}": tiny_models.prompt(length, seed=length) for length in (2, 5, 9, 17, 18, 25, 33, 60)}
    for name, prompt in prompts.items():
        submit(scheduler, name, prompt)
    seen = Seen()
    seen.take(scheduler.step())
    assert set(seen.prefilled) == set(prompts)
    assert drain(scheduler, seen).tokens == {name: expected(folder, prompt) for name, prompt in prompts.items()}
    longer = {name: [*prompt, *tiny_models.prompt(4, seed=len(prompt))] for name, prompt in prompts.items()}
    for name, prompt in longer.items():
        submit(scheduler, name, prompt)
    seen = drain(scheduler)
    assert seen.tokens == {name: expected(folder, prompt) for name, prompt in longer.items()}
    assert seen.cached == {name: len(prompt) for name, prompt in prompts.items()}
    scheduler.close()


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_a_conversation_goes_on_and_branches_from_what_was_kept(family: str, tiny_model: TinyModels) -> None:
    folder = tiny_model(family)
    scheduler = scheduler_of(folder)
    before = talk = list(SHARED)
    for turn in range(3):
        submit(scheduler, "turn", talk)
        seen = drain(scheduler)
        assert seen.tokens["turn"] == expected(folder, talk)
        assert turn == 0 or seen.cached["turn"] == len(talk) - 10
        before = talk
        talk = [*talk, *seen.tokens["turn"], *tiny_models.prompt(10, seed=50 + turn)]
    for name in ("branch", "branch again"):
        branch = [*before, *tiny_models.prompt(30, seed=len(name))]
        submit(scheduler, name, branch)
        seen = drain(scheduler)
        assert seen.tokens[name] == expected(folder, branch)
        assert seen.cached[name] >= len(before) - 16
    scheduler.close()


@pytest.mark.parametrize("family", tiny_models.UNBATCHED)
def test_a_family_that_takes_one_sequence_at_a_time_is_given_one_at_a_time(family: str, tiny_model: TinyModels) -> None:
    from exo.runner.engines.mlx.width import width

    folder = tiny_model(family)
    scheduler = scheduler_of(folder, width=width(model_of(folder)))
    for name, prompt in PROMPTS.items():
        submit(scheduler, name, prompt)
    seen = drain(scheduler)
    assert seen.failed == {}
    assert seen.tokens == {name: expected(folder, prompt) for name, prompt in PROMPTS.items()}
    scheduler.close()


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next"])
def test_ten_agents_with_one_system_prompt_compute_it_once(family: str, tiny_model: TinyModels) -> None:
    folder = tiny_model(family)
    scheduler = scheduler_of(folder, slice_tokens=64)
    agents = {f"agent {number}": [*SHARED, *tiny_models.prompt(10, seed=number)] for number in range(10)}
    for name, prompt in agents.items():
        submit(scheduler, name, prompt)
    seen = drain(scheduler)
    assert seen.tokens == {name: expected(folder, prompt) for name, prompt in agents.items()}
    first, *others = sorted(seen.cached.values())
    assert first == 0
    assert others[0] > len(SHARED) - 128
    scheduler.close()


def test_ten_that_wait_for_the_same_long_prompt_hold_up_no_short_one(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, slice_tokens=64)
    names = [f"long {number}" for number in range(10)]
    for name in names:
        submit(scheduler, name, PROMPTS["long"])
    seen = Seen()
    seen.take(scheduler.step())
    submit(scheduler, "short", PROMPTS["another"])
    step_until(scheduler, seen, lambda seen: "short" in seen.tokens)
    assert seen.prefilled == ["short"]
    step_until(scheduler, seen, lambda seen: "long 0" in seen.tokens)
    assert set(seen.prefilled) == {"short", *names}
    right = dict.fromkeys(names, expected(folder, PROMPTS["long"]))
    assert drain(scheduler, seen).tokens == {**right, "short": expected(folder, PROMPTS["another"])}
    scheduler.close()


def test_what_waits_for_another_prompt_is_not_looked_up_at_every_step(tiny_model: TinyModels) -> None:
    """A look-up compares with all that is kept, and has the ranks wait for each other."""

    class Counted:
        size, count = 1, 0

        def agree(self, values: Sequence[int]) -> list[int]:
            self.count += 1
            return list(values)

    def agreed_in_a_step(requests: int) -> int:
        ranks = Counted()
        scheduler = scheduler_of(tiny_model("llama"), slice_tokens=64, ranks=ranks)
        for number in range(requests):
            submit(scheduler, f"request {number}", PROMPTS["long"])
        scheduler.step()
        before = ranks.count
        scheduler.step()
        scheduler.close()
        return ranks.count - before

    assert agreed_in_a_step(10) == agreed_in_a_step(1)


def test_a_state_is_kept_where_prompts_part_once_two_did_part_there(tiny_model: TinyModels) -> None:
    """A state space cannot be trimmed: the second prompt shows where the third will part."""
    scheduler = scheduler_of(tiny_model("mamba2"))
    cached: list[int] = []
    for seed in range(3):
        submit(scheduler, "request", [*SHARED[:200], *tiny_models.prompt(40, seed=seed)])
        cached.append(drain(scheduler).cached["request"])
    assert cached == [0, 0, 200]
    scheduler.close()


def test_a_short_prompt_is_answered_while_a_long_one_is_computed(tiny_model: TinyModels) -> None:
    scheduler = scheduler_of(tiny_model("llama"), slice_tokens=64)
    submit(scheduler, "long", tiny_models.prompt(2000, seed=1))
    scheduler.step()
    submit(scheduler, "short", tiny_models.prompt(30, seed=2), max_tokens=4)
    assert drain(scheduler).prefilled == ["short", "long"]
    scheduler.close()


def test_running_requests_get_a_token_between_any_two_slices(tiny_model: TinyModels) -> None:
    scheduler = scheduler_of(tiny_model("llama"), slice_tokens=64)
    submit(scheduler, "running", tiny_models.prompt(10, seed=1), max_tokens=200)
    seen = step_until(scheduler, Seen(), lambda seen: "running" in seen.tokens)
    submit(scheduler, "long", tiny_models.prompt(1000, seed=2))
    before = len(seen.tokens["running"])
    steps = 0
    while "long" not in seen.tokens:
        seen.take(scheduler.step())
        steps += 1
        assert len(seen.tokens["running"]) == before + steps
    assert steps >= 1000 // 64
    scheduler.cancel([TaskId("running"), TaskId("long")])
    scheduler.close()


def test_a_cancelled_prompt_leaves_what_was_computed_of_it(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, slice_tokens=64)
    submit(scheduler, "cancelled", PROMPTS["long"])
    for _ in range(3):
        scheduler.step()
    scheduler.cancel([TaskId("cancelled")])
    assert scheduler.in_flight == 0
    submit(scheduler, "next", PROMPTS["long"])
    seen = drain(scheduler)
    assert seen.cached["next"] == 3 * 64
    assert seen.tokens["next"] == expected(folder, PROMPTS["long"])
    scheduler.close()


def test_a_cancelled_answer_is_kept_for_the_next_turn(tiny_model: TinyModels) -> None:
    folder = tiny_model("gemma3_text")
    scheduler = scheduler_of(folder)
    submit(scheduler, "cancelled", SHARED, max_tokens=500)
    seen = step_until(scheduler, Seen(), lambda seen: len(seen.tokens.get("cancelled", [])) == 20)
    scheduler.cancel([TaskId("cancelled")])
    turn = [*SHARED, *seen.tokens["cancelled"], *tiny_models.prompt(5, seed=9)]
    submit(scheduler, "next", turn)
    seen = drain(scheduler)
    assert seen.cached["next"] == len(turn) - 5
    assert seen.tokens["next"] == expected(folder, turn)
    scheduler.close()


def test_two_hundred_requests_that_are_cancelled_at_random_leave_nothing_behind(tiny_model: TinyModels) -> None:
    folder = tiny_model("falcon_h1")  # keys and values, and a state, in every layer
    scheduler = scheduler_of(folder, slice_tokens=32)
    chance = random.Random(5)
    live: set[str] = set()
    for number in range(200):
        name = f"request {number}"
        beginning = SHARED[: chance.choice([0, 100, 300])]
        submit(scheduler, name, [*beginning, *tiny_models.prompt(chance.randint(1, 60), seed=number)], max_tokens=8)
        live.add(name)
        seen = Seen()
        for _ in range(chance.randint(0, 3)):
            seen.take(scheduler.step())
        live -= {name for name, end in seen.ends.items() if end is not None}
        if chance.random() < 0.6 and live:
            victim = chance.choice(sorted(live))
            live.discard(victim)
            scheduler.cancel([TaskId(victim)])
        assert scheduler.in_flight == len(live)
    seen = drain(scheduler)
    assert {name for name, end in seen.ends.items() if end is not None} >= live
    assert scheduler.held_bytes == 0
    assert alone(scheduler, PROMPTS["first"]) == expected(folder, PROMPTS["first"])
    _all_memory_is_the_prefix_caches(scheduler)
    scheduler.close()


def _all_memory_is_the_prefix_caches(scheduler: Any) -> None:
    """What is active falls by what the prefix cache holds when it goes, and by no less than most of that."""
    import mlx.core as mx

    kept = scheduler.kept_bytes
    before = mx.get_active_memory()
    scheduler.close()
    freed = before - mx.get_active_memory()
    assert 0.5 * kept < freed < 1.5 * kept
