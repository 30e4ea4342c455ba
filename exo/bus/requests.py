"""The stream `REQUESTS`: what clients asked for, kept an hour, and never in the log."""

from contextlib import suppress

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from pydantic import TypeAdapter, ValidationError

from exo.bus.client import Bus, asking, publish
from exo.bus.streams import BLOBS, REQUESTS
from exo.domain.ids import TaskId
from exo.domain.messages.requests import GenerationRequest, Payload
from exo.errors import Rejected, Retryable

INLINE_MOST = 7 * 2**20
"""Bytes of a payload that fit into one message; a larger one goes to the object store. The message limit is 8 MB."""
PATIENCE = 10.0
"""Seconds to wait for NATS."""

_payloads: TypeAdapter[Payload] = TypeAdapter(Payload)


async def put_request(bus: Bus, task_id: TaskId, request: Payload) -> None:
    """Leave a payload for the runners. Raises Retryable where NATS stays away."""
    await _put(bus, bus.subjects.request(task_id), task_id, request.model_dump_json().encode())


async def get_request(bus: Bus, task_id: TaskId) -> GenerationRequest | None:
    """The payload of a generation; None where it is gone, or another. Raises as `get_payload`."""
    payload = await get_payload(bus, task_id)
    return payload if isinstance(payload, GenerationRequest) else None


async def get_payload(bus: Bus, task_id: TaskId) -> Payload | None:
    """What lies under a task's id; None where it is gone.

    Raises Rejected where it cannot be read, and Retryable where NATS stays away.
    """
    payload = await _get(bus, bus.subjects.request(task_id), task_id)
    if payload is None:
        return None
    try:
        return _payloads.validate_json(payload)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise Rejected(f"the request cannot be read by this node: {problem}", code="request_unreadable") from error


async def put_record(bus: Bus, task_id: TaskId, record: bytes) -> None:
    """Leave beside a payload what its API needs to show the answer later. Raises Retryable."""
    await _put(bus, bus.subjects.record(task_id), f"{task_id}-record", record)


async def get_record(bus: Bus, task_id: TaskId) -> bytes | None:
    """What was left beside a payload; None where nothing was, or it is gone. Raises Retryable."""
    return await _get(bus, bus.subjects.record(task_id), f"{task_id}-record")


async def delete_request(bus: Bus, task_id: TaskId) -> None:
    """Forget a payload and what was left beside it. Raises Retryable."""
    with asking(f"the request {task_id} could not be deleted"):
        store = await bus.js.object_store(BLOBS)
        for subject, name in (
            (bus.subjects.record(task_id), f"{task_id}-record"),
            (bus.subjects.request(task_id), task_id),
        ):
            await bus.js.purge_stream(REQUESTS, subject=subject)
            with suppress(NotFoundError):
                await store.delete(name)


async def _put(bus: Bus, subject: str, name: str, payload: bytes) -> None:
    """`name`: of what does not fit into one message."""
    if len(payload) > INLINE_MOST:
        with asking(f"the request {name} could not be stored"):
            store = await bus.js.object_store(BLOBS)
            await store.put(name, payload)
        payload = b""
    await publish(bus, subject, payload, f"request-{name}", PATIENCE)


async def _get(bus: Bus, subject: str, name: str) -> bytes | None:
    try:
        message = await bus.js.get_last_msg(REQUESTS, subject, direct=True)
        return message.data or await _get_blob(bus, name)
    except NotFoundError:
        return None
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"the request {name} cannot be read: {error!r}") from error


async def _get_blob(bus: Bus, name: str) -> bytes:
    store = await bus.js.object_store(BLOBS)
    return (await store.get(name)).data or b""
