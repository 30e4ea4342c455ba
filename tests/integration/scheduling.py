"""What the tests of the MLX engine's scheduler share: it alone, on a tiny model, with what it depends on passed in."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exo.domain.ids import TaskId
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput
from tests.tiny_models import greedy_tokens

NEW_TOKENS = 16


@functools.cache
def model_of(folder: Path) -> Any:
    """The tiny model in a folder, loaded once."""
    from exo.runner.engines.mlx.weights import load_weights

    return load_weights(folder, lambda done, total: None)


def scheduler_of(folder: Path, slice_tokens: int | None = None, **parts: Any) -> Any:
    """A scheduler of that model, with slices of a fixed size if one is given."""
    model = parts.pop("model", None) or model_of(folder)
    from exo.runner.engines.mlx.scheduler import Scheduler
    from exo.runner.engines.mlx.slices import SlicePace

    pace = SlicePace() if slice_tokens is None else SlicePace(least=slice_tokens, most=slice_tokens)
    return Scheduler(model, [], pace=pace, **parts)


def submit(
    scheduler: Any, name: str, prompt: Sequence[int], max_tokens: int | None = NEW_TOKENS, context: int = 8192
) -> None:
    """Submits a greedy request."""
    from exo.runner.engines.mlx.sampling import Choice, greedy

    scheduler.submit(TaskId(name), prompt, Choice(greedy, ()), max_tokens, context)


@dataclass
class Seen:
    """What came out, by request."""

    tokens: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    ends: dict[str, str | None] = field(default_factory=dict[str, str | None])
    cached: dict[str, int] = field(default_factory=dict[str, int])
    prefilled: list[str] = field(default_factory=list[str])
    """Whose prompts ended, in this order."""
    failed: dict[str, FailedOutput] = field(default_factory=dict[str, FailedOutput])

    def take(self, outputs: Iterable[EngineOutput]) -> None:
        for output in outputs:
            match output:
                case TokenOutput():
                    self.tokens.setdefault(output.task_id, []).append(output.token)
                    self.ends[output.task_id] = output.finish_reason
                case PrefillOutput():
                    self.cached[output.task_id] = output.cached
                    if output.done == output.total:
                        self.prefilled.append(output.task_id)
                case FailedOutput():
                    self.failed[output.task_id] = output


def drain(scheduler: Any, seen: Seen | None = None) -> Seen:
    """Steps until nothing is in flight."""
    seen = Seen() if seen is None else seen
    while scheduler.in_flight:
        seen.take(scheduler.step())
    return seen


def step_until(scheduler: Any, seen: Seen, reached: Callable[[Seen], bool]) -> Seen:
    """Steps until something has come out."""
    while not reached(seen):
        assert scheduler.in_flight, "all ended before"
        seen.take(scheduler.step())
    return seen


def expected(folder: Path, prompt: Sequence[int], max_tokens: int = NEW_TOKENS) -> list[int]:
    """The tokens that mlx-lm gives."""
    return greedy_tokens(folder, prompt, max_tokens)


def alone(scheduler: Any, prompt: Sequence[int], max_tokens: int = NEW_TOKENS) -> list[int]:
    """The tokens of one request with nothing beside it."""
    submit(scheduler, "alone", prompt, max_tokens)
    return drain(scheduler).tokens["alone"]
