"""The scheduler where memory is short, where a step fails, and where ranks see different machines."""

import resource
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from exo.domain.ids import TaskId
from exo.errors import Rejected
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
from tests.ranks_as_threads import Together

pytestmark = needs_mlx

LLAMA_TOKEN = 6 * 2 * 6 * 16 * 4
"""Bytes of keys and values of one token of the tiny llama: layers, both, heads, size of a head, float32."""


class Machine:
    """Memory and a clock that the test sets. What the scheduler holds is not free."""

    def __init__(self, tokens: int, token_bytes: int = LLAMA_TOKEN) -> None:
        self.capacity = tokens * token_bytes
        self.now = 0.0
        self.scheduler: Any = None

    def free_bytes(self) -> int:
        if self.scheduler is None:
            return self.capacity
        return self.capacity - self.scheduler.held_bytes - self.scheduler.kept_bytes

    def clock(self) -> float:
        return self.now

    def run(self, folder: Path, **parts: Any) -> Any:
        """A scheduler on this machine."""
        self.scheduler = scheduler_of(folder, 64, free_bytes=self.free_bytes, clock=self.clock, **parts)
        return self.scheduler


@pytest.mark.parametrize(("prompt", "max_tokens", "asked"), [(1100, 16, 1116), (1200, None, 1201), (16, 1100, 1116)])
def test_what_memory_could_not_hold_alone_is_refused_before_prefill_with_both_numbers(
    prompt: int, max_tokens: int | None, asked: int, tiny_model: TinyModels
) -> None:
    scheduler = Machine(tokens=1200).run(tiny_model("llama"))
    with pytest.raises(Rejected, match=rf"needs {asked} tokens .* memory holds 1024;") as refused:
        submit(scheduler, "large", tiny_models.prompt(prompt), max_tokens)
    assert refused.value.code == "context_length_exceeded"
    assert scheduler.in_flight == 0
    scheduler.close()


def test_a_limit_on_the_process_is_known_before_memory_fails(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 64)
    alone(scheduler, tiny_models.prompt(16))
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + 256 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        with pytest.raises(Rejected, match=r"needs 100016 tokens .* memory holds \d{5};"):
            submit(scheduler, "large", tiny_models.prompt(100_000), context=200_000)
        assert alone(scheduler, tiny_models.prompt(20)) == expected(folder, tiny_models.prompt(20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    scheduler.close()


def test_windows_and_state_spaces_take_the_memory_that_they_take(tiny_model: TinyModels) -> None:
    """The same bytes hold 1024 tokens of llama, but more where layers keep a window, and any number of a state."""
    capacity = 1200 * LLAMA_TOKEN
    for family, most in (("gemma3_text", 3 * 1024), ("mamba2", 8000)):
        scheduler = Machine(capacity, token_bytes=1).run(tiny_model(family))
        submit(scheduler, "fits", tiny_models.prompt(most - 64), max_tokens=1)
        scheduler.close()


def test_a_request_that_fits_only_later_waits_for_others_to_end(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = Machine(tokens=1200).run(folder)
    for name in ("first", "second"):
        submit(scheduler, name, tiny_models.prompt(700, seed=len(name)))
    seen = step_until(scheduler, Seen(), lambda seen: "first" in seen.tokens)
    assert seen.prefilled == ["first"]
    seen = drain(scheduler, seen)
    assert seen.tokens == {
        name: expected(folder, tiny_models.prompt(700, seed=len(name))) for name in ("first", "second")
    }
    scheduler.close()


def test_a_request_does_not_wait_for_memory_for_ever(tiny_model: TinyModels) -> None:
    machine = Machine(tokens=1200)
    scheduler = machine.run(tiny_model("llama"))
    submit(scheduler, "running", tiny_models.prompt(700), max_tokens=200)
    seen = step_until(scheduler, Seen(), lambda seen: "running" in seen.tokens)
    submit(scheduler, "waiting", tiny_models.prompt(700, seed=1))
    seen.take(scheduler.step())
    assert seen.failed == {}
    machine.now += 1000
    seen = drain(scheduler, seen)
    assert seen.failed["waiting"].code == "insufficient_memory"
    assert "716 tokens" in seen.failed["waiting"].message
    assert len(seen.tokens["running"]) == 200
    scheduler.close()


def test_the_prefix_cache_gives_way_before_a_request_has_to_wait(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = Machine(tokens=1200).run(folder)
    alone(scheduler, tiny_models.prompt(400, seed=1))
    assert scheduler.kept_bytes > 400 * LLAMA_TOKEN
    submit(scheduler, "large", tiny_models.prompt(900, seed=2))
    scheduler.step()
    assert scheduler.kept_bytes == 0
    assert drain(scheduler).tokens["large"] == expected(folder, tiny_models.prompt(900, seed=2))
    scheduler.close()


def test_the_prefix_cache_shrinks_when_other_programs_take_memory(tiny_model: TinyModels) -> None:
    machine = Machine(tokens=4000)
    scheduler = machine.run(tiny_model("llama"))
    for seed in range(3):
        alone(scheduler, tiny_models.prompt(300, seed=seed))
    assert scheduler.kept_bytes > 900 * LLAMA_TOKEN
    machine.capacity = 1100 * LLAMA_TOKEN
    submit(scheduler, "newest again", tiny_models.prompt(300, seed=2))
    assert drain(scheduler).cached["newest again"] == 299
    assert 0 < scheduler.kept_bytes <= 0.5 * machine.capacity
    scheduler.close()


def test_an_idle_engine_lets_other_programs_have_the_memory(tiny_model: TinyModels) -> None:
    machine = Machine(tokens=4000)
    scheduler = machine.run(tiny_model("llama"))
    alone(scheduler, tiny_models.prompt(300))
    scheduler.rest()
    assert scheduler.kept_bytes > 300 * LLAMA_TOKEN
    machine.capacity = 400 * LLAMA_TOKEN
    scheduler.rest()
    assert scheduler.kept_bytes == 0
    scheduler.close()


def test_an_answer_without_a_limit_ends_where_memory_does(tiny_model: TinyModels) -> None:
    scheduler = Machine(tokens=600).run(tiny_model("llama"))
    submit(scheduler, "endless", tiny_models.prompt(16), max_tokens=None)
    seen = drain(scheduler)
    assert seen.ends["endless"] == "length"
    assert 256 <= 16 + len(seen.tokens["endless"]) <= 600
    scheduler.close()


def faulty(model: Any, fails: Callable[[Any], bool]) -> Any:
    """The model, which cannot compute tokens that `fails` names."""
    from mlx import nn

    class Faulty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def make_cache(self) -> Any:
            from mlx_lm.models.cache import make_prompt_cache

            return make_prompt_cache(self.inner)

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            if fails(tokens):
                raise RuntimeError("cannot compute this")
            return self.inner(tokens, cache=cache)

    return Faulty()


def test_a_prompt_that_cannot_be_computed_fails_alone(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    bad = tiny_models.prompt(200, seed=3)
    scheduler = scheduler_of(folder, 64, model=faulty(model_of(folder), lambda tokens: bad[100] in tokens.tolist()[0]))
    good = [token for token in tiny_models.prompt(90, seed=4) if token != bad[100]]
    submit(scheduler, "good", good, max_tokens=4)
    submit(scheduler, "bad", bad, max_tokens=4)
    seen = drain(scheduler)
    assert set(seen.failed) == {"bad"}
    assert "cannot compute this" in seen.failed["bad"].message
    assert seen.tokens["good"] == expected(folder, good, 4)
    scheduler.close()


def test_of_requests_that_share_a_step_the_one_at_fault_fails_and_the_others_go_on(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    prompts = {name: tiny_models.prompt(20, seed=seed) for seed, name in enumerate(("one", "two", "three"))}
    right = {name: expected(folder, prompt) for name, prompt in prompts.items()}
    poison = right["two"][5]
    assert not any(poison in tokens for name, tokens in right.items() if name != "two")
    model = faulty(model_of(folder), lambda tokens: tokens.shape[1] == 1 and [poison] in tokens.tolist())
    scheduler = scheduler_of(folder, 64, model=model)
    for name, prompt in prompts.items():
        submit(scheduler, name, prompt)
    seen = drain(scheduler)
    assert set(seen.failed) == {"two"}
    assert {name: tokens for name, tokens in seen.tokens.items() if name != "two"} == {
        name: tokens for name, tokens in right.items() if name != "two"
    }
    assert seen.tokens["two"] == right["two"][:5]
    assert scheduler.held_bytes == 0
    scheduler.close()


def test_an_engine_that_can_compute_nothing_says_so(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    broken = False
    scheduler = scheduler_of(folder, 64, model=faulty(model_of(folder), lambda tokens: broken))
    broken = True
    for seed in range(4):
        submit(scheduler, f"request {seed}", tiny_models.prompt(20, seed=seed))
    with pytest.raises(RuntimeError, match="cannot compute this"):
        drain(scheduler)
    scheduler.close()


def test_ranks_with_other_memory_speed_and_clock_do_the_same(tiny_model: TinyModels) -> None:
    """Rank 1 has a third of rank 0's memory: it decides what is kept, what waits and what is refused."""
    folder = tiny_model("llama")
    together = Together(2)
    did: dict[int, list[Any]] = {0: [], 1: []}
    threads = [
        threading.Thread(target=_work, args=(folder, together, Machine((3600, 1200)[rank]), did[rank]))
        for rank in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert did[0] == did[1]
    assert did[0][-1] == "done"


def _work(folder: Path, ranks: Together, machine: Machine, did: list[Any]) -> None:
    """Two requests that fit only one after the other on rank 1, then one that fits on rank 0 alone."""
    from exo.runner.engines.mlx.weights import load_weights

    model = load_weights(folder, lambda done, total: None)
    scheduler = machine.run(folder, model=model, ranks=ranks)
    for seed in (1, 2, 1):
        submit(scheduler, f"request {len(did)}", tiny_models.prompt(500, seed=seed), max_tokens=8)
        did.append(scheduler.step())
    while scheduler.in_flight:
        did.append(scheduler.step())
    try:
        submit(scheduler, "large", tiny_models.prompt(1500), max_tokens=8)
    except Rejected as refused:
        did.append(refused.reason)
    scheduler.close()
    did.append("done")


def test_a_failing_step_of_several_ranks_is_the_engines(tiny_model: TinyModels) -> None:
    """The others may not have met it, and would wait for this rank for ever."""
    folder = tiny_model("llama")

    class OneOfTwo:
        size = 2

        def agree(self, values: Sequence[int]) -> list[int]:
            return list(values)

    bad = tiny_models.prompt(20, seed=1)
    model = faulty(model_of(folder), lambda tokens: bad[3] in tokens.tolist()[0])
    scheduler = scheduler_of(folder, 64, model=model, ranks=OneOfTwo())
    submit(scheduler, "bad", bad)
    with pytest.raises(RuntimeError):
        scheduler.step()
    scheduler.cancel([TaskId("bad")])
    scheduler.close()
