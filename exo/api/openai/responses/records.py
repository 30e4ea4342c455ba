"""What is kept of a response besides its payload and its chunks: what was asked for, and when."""

from dataclasses import dataclass

from exo.api.http.access import owns
from exo.api.openai.responses.ids import not_found, response_id
from exo.api.openai.responses.requests import ResponseRequest
from exo.bus.client import Bus
from exo.bus.requests import get_record, put_record
from exo.domain.base import Frozen
from exo.domain.ids import KeyName, ModelId, TaskId
from exo.domain.keys import ANONYMOUS


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """Who asked for what, and when."""

    task_id: TaskId
    created: int
    """Seconds since the epoch."""
    model_id: ModelId
    request: ResponseRequest
    key: KeyName = ANONYMOUS
    """Whose it is."""


class _Kept(Frozen):
    """Lies beside the payload in the stream REQUESTS, an hour."""

    task_id: TaskId
    created: int
    model_id: ModelId
    body: str
    """As the client sent it."""
    key: KeyName = ANONYMOUS


async def keep(bus: Bus, record: ResponseRecord, body: bytes) -> None:
    """Keep a response, and the body that asked for it, for who asks for it later. Raises Retryable where NATS stays
    away."""
    kept = _Kept(
        task_id=record.task_id,
        created=record.created,
        model_id=record.model_id,
        body=body.decode(),
        key=record.key,
    )
    await put_record(bus, record.task_id, kept.model_dump_json().encode())


async def find(bus: Bus, task_id: TaskId) -> ResponseRecord:
    """What is kept of a response. Raises Rejected where nothing is, or it is another key's, and Retryable."""
    payload = await get_record(bus, task_id)
    if payload is None:
        raise not_found(response_id(task_id))
    kept = _Kept.model_validate_json(payload)
    if not owns(kept.key):
        raise not_found(response_id(task_id))
    request = ResponseRequest.model_validate_json(kept.body)
    return ResponseRecord(kept.task_id, kept.created, kept.model_id, request, kept.key)
