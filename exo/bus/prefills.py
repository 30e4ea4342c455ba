"""One instance's runner asks another's for the KV state of a prompt. Plain messages; the state itself goes over a
connection of its own."""

from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter, ValidationError

from exo.bus.client import Bus
from exo.bus.runner_questions import answer_questions, ask_runner
from exo.domain.ids import InstanceId
from exo.domain.messages.prefills import PrefillAnswer, PrefillAsked, PrefillOffered, PrefillRefused
from exo.errors import Rejected, Retryable

Begin = Callable[[PrefillAsked], Awaitable[int]]
"""Begins to compute a prompt; the port at which its state can be had. May raise Rejected."""

_answers: TypeAdapter[PrefillAnswer] = TypeAdapter(PrefillAnswer)


async def answer_prefills(bus: Bus, instance_id: InstanceId, begin: Begin) -> None:
    """Answer for an instance, for as long as the connection lives. A long prompt holds up no others."""

    async def answer(question: bytes) -> PrefillAnswer:
        return await _begun(begin, question)

    await answer_questions(bus, bus.subjects.prefill(instance_id), answer)


async def ask_prefill(bus: Bus, instance_id: InstanceId, asked: PrefillAsked, patience: float) -> int:
    """Have an instance compute a prompt; the port at which its state can be had.

    Raises Rejected where it refuses, and Retryable where it does not answer within `patience`, seconds, or the prompt
    is too long for a message.
    """
    question = asked.model_dump_json().encode()
    if len(question) > bus.client.max_payload:
        raise Retryable(f"a prompt of {len(asked.tokens)} tokens is too long for a message")
    subject, late = bus.subjects.prefill(instance_id), "its runner did not answer"
    answer = await ask_runner(bus, subject, question, patience, _answers, gone="its runner is gone", late=late)
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
