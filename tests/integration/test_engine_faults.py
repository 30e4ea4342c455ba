"""Requests whose tokens cannot be chosen: they fail, and nobody else does, however many ranks there are."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from tests import tiny_models
from tests.conftest import TinyModels, needs_mlx
from tests.integration.scheduling import NEW_TOKENS, Seen, drain, scheduler_of, step_until, submit
from tests.ranks_as_threads import Together

pytestmark = needs_mlx

PROMPTS = {name: tiny_models.prompt(20, seed=seed) for seed, name in enumerate(("one", "bad", "three"))}
ERRORS = [ValueError, KeyError, AssertionError, RuntimeError]


def right(folder: Path, *names: str) -> dict[str, list[int]]:
    return {name: tiny_models.greedy_tokens(folder, PROMPTS[name], NEW_TOKENS) for name in names}


def failing_at(position: int, error: type[Exception], prompt_tokens: int = 20) -> Callable[[Any, Any], Any]:
    """A processor that cannot choose the answer's token at this position."""

    def processor(context: Any, logits: Any) -> Any:
        if context.size - prompt_tokens == position:
            raise error("no choice")
        return logits

    return processor


def submit_bad(scheduler: Any, *processors: Callable[[Any, Any], Any], sampler: Any = None, teller: Any = None) -> None:
    from exo.runner.engines.mlx.sampling import Choice, greedy

    scheduler.submit(TaskId("bad"), PROMPTS["bad"], Choice(sampler or greedy, processors, teller), NEW_TOKENS, 8192)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("position", [0, 1, 5])
def test_a_request_whose_processor_raises_fails_alone(
    position: int, error: type[Exception], tiny_model: TinyModels
) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 256)
    submit(scheduler, "one", PROMPTS["one"])
    submit_bad(scheduler, failing_at(position, error))
    submit(scheduler, "three", PROMPTS["three"])
    seen = drain(scheduler)
    assert set(seen.failed) == {"bad"}
    assert "no choice" in seen.failed["bad"].message
    assert len(seen.tokens.pop("bad", [])) == max(0, position - 1)
    assert seen.tokens == right(folder, "one", "three")
    assert scheduler.held_bytes == 0
    scheduler.close()


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_request_whose_sampler_raises_fails_alone(error: type[Exception], tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 256)

    def sampler(logprobs: Any) -> Any:
        raise error("no choice")

    submit(scheduler, "one", PROMPTS["one"])
    submit_bad(scheduler, sampler=sampler)
    submit(scheduler, "three", PROMPTS["three"])
    seen = drain(scheduler)
    assert set(seen.failed) == {"bad"}
    assert seen.tokens == right(folder, "one", "three")
    scheduler.close()


def test_a_request_that_cannot_start_leaves_those_that_run_alone(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 256)
    submit(scheduler, "one", PROMPTS["one"])
    seen = step_until(scheduler, Seen(), lambda seen: len(seen.tokens.get("one", [])) == 4)
    submit_bad(scheduler, failing_at(0, ValueError))
    while "bad" not in seen.failed:
        before = len(seen.tokens["one"])
        seen.take(scheduler.step())
        assert len(seen.tokens["one"]) == before + 1
    assert drain(scheduler, seen).tokens == right(folder, "one")
    scheduler.close()


def test_a_request_whose_logprobs_cannot_be_told_fails_alone(tiny_model: TinyModels) -> None:
    import mlx.core as mx

    from exo.runner.engines.mlx.logprobs import Teller

    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 256)
    nothing: dict[int, bytes] = {}
    teller = Teller(1, nothing.__getitem__, mx.new_stream(mx.default_device()), is_changed=False)
    submit(scheduler, "one", PROMPTS["one"])
    submit_bad(scheduler, teller=teller)
    seen = drain(scheduler)
    assert "KeyError" in seen.failed["bad"].message
    assert seen.tokens == right(folder, "one")
    scheduler.close()


@pytest.mark.parametrize("position", [0, 5])
def test_what_others_draw_does_not_depend_on_a_request_that_fails(position: int, tiny_model: TinyModels) -> None:
    from exo.runner.engines.mlx.sampling import Choice, Samplers

    folder = tiny_model("llama")
    samplers = Samplers(lambda token: b"")
    scheduler = scheduler_of(folder, 256, on_lost_step=samplers.forget_step)
    params = SamplingParams(temperature=1, seed=7, frequency_penalty=0.5)

    def submit_drawn(name: str) -> None:
        choice = samplers.for_request(TaskId(name), params, 20)
        scheduler.submit(TaskId(name), PROMPTS["one"], choice, NEW_TOKENS, 8192)

    submit_drawn("alone")
    drawn = drain(scheduler).tokens["alone"]
    submit_drawn("beside")
    bad = samplers.for_request(TaskId("bad"), params, 20)
    processors = (*bad.processors, failing_at(position, ValueError))
    scheduler.submit(TaskId("bad"), PROMPTS["bad"], Choice(bad.sampler, processors), NEW_TOKENS, 8192)
    submit_drawn("behind")
    seen = drain(scheduler)
    assert set(seen.failed) == {"bad"}
    assert seen.tokens["beside"] == seen.tokens["behind"] == drawn
    scheduler.close()


def test_any_number_of_such_requests_leaves_the_engine_whole(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    scheduler = scheduler_of(folder, 256)
    for _ in range(6):
        submit_bad(scheduler, failing_at(0, ValueError))
        assert set(drain(scheduler).failed) == {"bad"}
    submit(scheduler, "one", PROMPTS["one"])
    assert drain(scheduler).tokens == right(folder, "one")
    scheduler.close()


def _on_two_ranks(folder: Path, errors: Sequence[type[Exception]]) -> tuple[list[Seen], list[Exception]]:
    """What each of two ranks saw, and what ended them, where the bad request's processor raises this on each."""
    together = Together(2)
    seen = [Seen(), Seen()]
    raised: list[Exception] = []

    def work(rank: int) -> None:
        from exo.runner.engines.mlx.weights import load_weights

        model = load_weights(folder, lambda done, total: None)
        scheduler = scheduler_of(folder, 256, model=model, ranks=together)
        submit(scheduler, "one", PROMPTS["one"])
        submit_bad(scheduler, failing_at(5, errors[rank]))
        submit(scheduler, "three", PROMPTS["three"])
        try:
            drain(scheduler, seen[rank])
        except RuntimeError as error:
            raised.append(error)
        scheduler.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    return seen, raised


def test_of_several_ranks_all_end_a_request_that_fails_on_each(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    seen, raised = _on_two_ranks(folder, [ValueError, ValueError])
    assert raised == []
    assert seen[0] == seen[1]
    assert set(seen[0].failed) == {"bad"}
    assert {name: seen[0].tokens[name] for name in ("one", "three")} == right(folder, "one", "three")


def test_of_several_ranks_one_s_lack_of_memory_is_the_engine_s(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama")
    _, raised = _on_two_ranks(folder, [RuntimeError, RuntimeError])
    assert [str(error) for error in raised] == ["no choice", "no choice"]
