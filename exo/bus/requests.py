"""The stream `REQUESTS`: what clients asked for, kept an hour, and never in the log."""

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from exo.bus.client import Bus, asking, publish
from exo.bus.streams import BLOBS, REQUESTS
from exo.domain.ids import TaskId
from exo.domain.messages.requests import GenerationRequest
from exo.errors import Rejected, Retryable

INLINE_MOST = 7 * 2**20
"""Bytes of a payload that fit into one message; a larger one goes to the object store. The message limit is 8 MB."""
PATIENCE = 10.0
"""Seconds to wait for NATS."""


async def put_request(bus: Bus, task_id: TaskId, request: GenerationRequest) -> None:
    """Leave a payload for the runners. Raises Retryable where NATS stays away."""
    payload = request.model_dump_json().encode()
    if len(payload) > INLINE_MOST:
        await _put_blob(bus, task_id, payload)
        payload = b""
    await publish(bus, bus.subjects.request(task_id), payload, f"request-{task_id}", PATIENCE)


async def get_request(bus: Bus, task_id: TaskId) -> GenerationRequest | None:
    """The payload of a generation; None where it is gone.

    Raises Rejected where it cannot be read, and Retryable where NATS stays away.
    """
    try:
        message = await bus.js.get_last_msg(REQUESTS, bus.subjects.request(task_id), direct=True)
        payload = message.data or await _get_blob(bus, task_id)
    except NotFoundError:
        return None
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"the request {task_id} cannot be read: {error!r}") from error
    try:
        return GenerationRequest.model_validate_json(payload)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise Rejected(f"the request cannot be read by this node: {problem}", code="request_unreadable") from error


async def _put_blob(bus: Bus, task_id: TaskId, payload: bytes) -> None:
    with asking(f"the request {task_id} could not be stored"):
        store = await bus.js.object_store(BLOBS)
        await store.put(task_id, payload)


async def _get_blob(bus: Bus, task_id: TaskId) -> bytes:
    store = await bus.js.object_store(BLOBS)
    return (await store.get(task_id)).data or b""
