"""The table `generations`: one row a generation, for usage and statistics. A projection of the events."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exo.domain.ids import TaskId
from exo.domain.messages.events import GenerationDispatched, GenerationFinished, GenerationQueued, Recorded

_LARGEST = 2**63 - 1
"""SQLite's largest integer. A runner can report more; the event keeps what it said."""


class GenerationRow(NamedTuple):
    """One generation, in the order of the table's columns. None: it did not come to that."""

    task_id: TaskId
    model_id: str
    key: str
    queued_at: float
    dispatched_at: float | None = None
    ended_at: float | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    queue_s: float | None = None
    """Seconds from being accepted to the first prefill step."""
    prefill_s: float | None = None
    decode_s: float | None = None
    code: str | None = None
    error: str | None = None


def project(rows: Mapping[TaskId, GenerationRow], batch: Iterable[Recorded]) -> dict[TaskId, GenerationRow]:
    """The rows that these events change, as they are afterwards. `rows` has at least those that are not over."""
    changed: dict[TaskId, GenerationRow] = {}
    for recorded in batch:
        event, time = recorded.entry.event, recorded.entry.recorded_at + 0.0
        match event:
            case GenerationQueued():
                changed[event.task_id] = GenerationRow(event.task_id, event.model_id, event.key, queued_at=time)
            case GenerationDispatched() | GenerationFinished():
                row = changed.get(event.task_id) or rows.get(event.task_id)
                if row is None or row.ended_at is not None:
                    continue
                dispatched = isinstance(event, GenerationDispatched)
                changed[event.task_id] = row._replace(dispatched_at=time) if dispatched else _ended(row, event, time)
            case _:
                pass
    return changed


def _ended(row: GenerationRow, event: GenerationFinished, time: float) -> GenerationRow:
    left_queue = time if row.dispatched_at is None else row.dispatched_at
    return row._replace(
        ended_at=time,
        finish_reason=event.finish_reason,
        prompt_tokens=min(event.usage.prompt_tokens, _LARGEST),
        completion_tokens=min(event.usage.completion_tokens, _LARGEST),
        cached_tokens=min(event.usage.cached_tokens, _LARGEST),
        queue_s=left_queue - row.queued_at + event.timings.wait,
        prefill_s=event.timings.prefill,
        decode_s=event.timings.decode,
        code=event.code,
        error=event.error,
    )
