"""One instance's runner asks another's for the KV state of a prompt. Plain messages; the state itself goes over a
connection of its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from pydantic import TypeAdapter, ValidationError

from exo.bus.client import Bus
from exo.domain.ids import InstanceId
from exo.domain.messages.prefills import PrefillAnswer, PrefillAsked, PrefillOffered, PrefillRefused
from exo.errors import Rejected, Retryable

logger = logging.getLogger(__name__)

Begin = Callable[[PrefillAsked], Awaitable[int]]
"""Begins to compute a prompt; the port at which its state can be had. May raise Rejected."""

_answers: TypeAdapter[PrefillAnswer] = TypeAdapter(PrefillAnswer)


async def answer_prefills(bus: Bus, instance_id: InstanceId, begin: Begin) -> None:
    """Answer for an instance, for as long as the connection lives. A long prompt holds up no others."""
    beginning: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        try:
            await message.respond((await _begun(begin, message.data)).model_dump_json().encode())
        except NatsError as error:
            logger.debug("an answer to who asked for a prefill was not sent: %r", error)

    async def received(message: Msg) -> None:
        task = asyncio.create_task(answer(message))
        beginning.add(task)
        task.add_done_callback(beginning.discard)

    await bus.client.subscribe(bus.subjects.prefill(instance_id), cb=received)


async def ask_prefill(bus: Bus, instance_id: InstanceId, asked: PrefillAsked, patience: float) -> int:
    """Have an instance compute a prompt; the port at which its state can be had.

    Raises Rejected where it refuses, and Retryable where it does not answer within `patience`, seconds, or the prompt
    is too long for a message.
    """
    try:
        question = asked.model_dump_json().encode()
        message = await bus.client.request(bus.subjects.prefill(instance_id), question, timeout=patience)
        answer = _answers.validate_json(message.data)
    except NoRespondersError as error:
        raise Retryable("its runner is gone") from error
    except MaxPayloadError as error:
        raise Retryable(f"a prompt of {len(asked.tokens)} tokens is too long for a message") from error
    except (NatsError, TimeoutError) as error:
        raise Retryable(f"its runner did not answer within {patience:.0f} s: {error!r}") from error
    except ValidationError as error:
        raise Retryable("a runner of another version answered: bring all nodes to one version") from error
    if isinstance(answer, PrefillRefused):
        raise Rejected(answer.reason)
    return answer.port


async def _begun(begin: Begin, question: bytes) -> PrefillAnswer:
    try:
        return PrefillOffered(port=await begin(PrefillAsked.model_validate_json(question)))
    except ValidationError:
        return PrefillRefused(reason="the question is none of this version: bring all nodes to one version")
    except Rejected as refusal:
        return PrefillRefused(reason=refusal.reason)
