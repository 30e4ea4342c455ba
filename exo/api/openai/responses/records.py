"""What is kept of a response besides its payload and its chunks: what was asked for, and when."""

from functools import cached_property

from exo.api.http.access import owns
from exo.api.openai.responses.ids import not_found, response_id
from exo.api.openai.responses.requests import ResponseRequest
from exo.bus.client import Bus
from exo.bus.requests import get_record, put_record
from exo.domain.base import Frozen
from exo.domain.ids import KeyName, ModelId, TaskId
from exo.domain.keys import ANONYMOUS


class ResponseRecord(Frozen):
    """Lies beside the payload in the stream REQUESTS, an hour."""

    task_id: TaskId
    created: int
    """Seconds since the epoch."""
    model_id: ModelId
    body: str
    """As the client sent it."""
    key: KeyName = ANONYMOUS
    """Whose it is."""

    @cached_property
    def request(self) -> ResponseRequest:
        """The body."""
        return ResponseRequest.model_validate_json(self.body)


async def keep(bus: Bus, record: ResponseRecord) -> None:
    """Keep a response for who asks for it later. Raises Retryable where NATS stays away."""
    await put_record(bus, record.task_id, record.model_dump_json().encode())


async def find(bus: Bus, task_id: TaskId) -> ResponseRecord:
    """What is kept of a response. Raises Rejected where nothing is, or it is another key's, and Retryable."""
    payload = await get_record(bus, task_id)
    if payload is None:
        raise not_found(response_id(task_id))
    record = ResponseRecord.model_validate_json(payload)
    if not owns(record.key):
        raise not_found(response_id(task_id))
    return record
