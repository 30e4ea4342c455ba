"""One runner asks another for the KV state of a prompt."""

import pytest

from exo.bus.client import Bus
from exo.bus.prefills import answer_prefills, ask_prefill
from exo.domain.ids import InstanceId, TaskId
from exo.domain.messages.prefills import PrefillAsked, PrefillRefused
from exo.errors import Rejected, Retryable
from exo.runner.kv.keys import new_key
from tests.integration.conftest import Settled

INSTANCE = InstanceId("prefill")
PATIENCE = 5.0


def asked(tokens: int = 300) -> PrefillAsked:
    return PrefillAsked(task_id=TaskId("t1"), key=new_key(), tokens=tuple(range(tokens)))


async def test_the_question_arrives_whole_and_the_port_comes_back(bus: Bus, other_bus: Bus, settled: Settled) -> None:
    question, seen = asked(), list[PrefillAsked]()

    async def begin(received: PrefillAsked) -> int:
        seen.append(received)
        return 17200

    await answer_prefills(bus, INSTANCE, begin)
    await settled(bus)
    assert await ask_prefill(other_bus, INSTANCE, question, PATIENCE) == 17200
    assert seen == [question]


async def test_a_refusal_comes_back_with_its_reason(bus: Bus, other_bus: Bus, settled: Settled) -> None:
    async def begin(_asked: PrefillAsked) -> int:
        raise Rejected("it is busy")

    await answer_prefills(bus, INSTANCE, begin)
    await settled(bus)
    with pytest.raises(Rejected, match="it is busy"):
        await ask_prefill(other_bus, INSTANCE, asked(), PATIENCE)


async def test_where_nobody_is_the_wait_is_short(bus: Bus) -> None:
    with pytest.raises(Retryable, match="its runner is gone"):
        await ask_prefill(bus, INSTANCE, asked(), PATIENCE)


async def test_who_does_not_answer_is_not_waited_for_without_end(bus: Bus, other_bus: Bus, settled: Settled) -> None:
    await bus.client.subscribe(bus.subjects.prefill(INSTANCE))
    await settled(bus)
    with pytest.raises(Retryable, match="did not answer within"):
        await ask_prefill(other_bus, INSTANCE, asked(), 0.1)


async def test_a_prompt_that_fits_no_message_is_not_asked_for(bus: Bus, other_bus: Bus, settled: Settled) -> None:
    async def begin(_asked: PrefillAsked) -> int:
        return 1

    await answer_prefills(bus, INSTANCE, begin)
    await settled(bus)
    with pytest.raises(Retryable, match="too long for a message"):
        await ask_prefill(other_bus, INSTANCE, asked(1_500_000), PATIENCE)


async def test_what_is_no_question_is_refused(bus: Bus, other_bus: Bus, settled: Settled) -> None:
    async def begin(_asked: PrefillAsked) -> int:
        return 1

    await answer_prefills(bus, INSTANCE, begin)
    await settled(bus)
    for question in (b"", b"{}", asked().model_dump_json().replace("[0,", "[-1,").encode()):
        message = await other_bus.client.request(other_bus.subjects.prefill(INSTANCE), question, timeout=PATIENCE)
        assert "of this version" in PrefillRefused.model_validate_json(message.data).reason
