"""`previous_response_id`: the conversation that an earlier response ends with."""

import time

from pydantic import TypeAdapter

from exo.api.context import Api
from exo.api.openai.responses.ids import not_found, task_of
from exo.api.openai.responses.items import Item, TypedItem, messages_of
from exo.api.openai.responses.records import ResponseRecord, find
from exo.api.openai.responses.stored_progress import progress_of
from exo.bus.requests import get_request
from exo.domain.messages.requests import ChatMessage
from exo.errors import Rejected

PARAM = "previous_response_id"
_ITEMS = TypeAdapter[list[Item]](list[TypedItem])


async def messages_before(api: Api, previous_id: str | None) -> tuple[ChatMessage, ...]:
    """What the earlier request and its answer said, without the earlier instructions, which hold for it alone.

    Raises Rejected where it is gone or has no answer, and Retryable where NATS stays away.
    """
    if previous_id is None:
        return ()
    record = await _found(api, previous_id)
    request = await get_request(api.bus, record.task_id)
    if request is None:
        raise _gone(previous_id)
    progress = await progress_of(api, record, time.time())
    if progress.status not in ("completed", "incomplete"):
        reason = f"the response '{previous_id}' has no answer to go on from: it is {progress.status}"
        raise Rejected(reason, code="response_not_completed", param=PARAM)
    said = request.messages[1:] if record.request.instructions else request.messages
    return (*said, *messages_of(_ITEMS.validate_python(progress.output)))


async def _found(api: Api, previous_id: str) -> ResponseRecord:
    try:
        return await find(api.bus, task_of(previous_id))
    except Rejected as error:
        raise _gone(previous_id) from error


def _gone(previous_id: str) -> Rejected:
    return Rejected(not_found(previous_id).reason, code="previous_response_not_found", param=PARAM)
