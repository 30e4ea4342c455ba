"""kill -9 at twenty random moments while commands pour in: each that was taken has exactly one outcome."""

import asyncio
import logging
import random
from collections import Counter
from functools import partial

import pytest

from exo.bus.client import Bus, connect
from exo.bus.inbox import send_command
from exo.bus.requests import put_request
from exo.domain.ids import ApiId, InstanceId, MessageId, ModelId, TaskId
from exo.domain.messages.commands import CancelGeneration, Command, DeleteInstance, PlaceInstance, StartGeneration
from exo.domain.messages.events import CommandRejected, GenerationFinished, GenerationQueued, MasterElected, Recorded
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.errors import Retryable
from exo.log.store import LogStore
from tests.cluster.history import assert_sound
from tests.stack import Stack, wait_until

logger = logging.getLogger(__name__)

KILLS, PER_KILL = 20, 10
MODEL = ModelId("exo/scripted")


async def commands(bus: Bus, round_number: int) -> list[MessageId]:
    """Ten commands, some that do something and some that are refused; the ids of those that the inbox took."""
    sent: list[MessageId] = []
    for number in range(PER_KILL):
        try:
            sent.append(await send_command(bus, "tester", await command(bus, f"{round_number}-{number}", number)))
        except Retryable as error:
            logger.info("not taken: %s", error)  # then nothing is promised
    return sent


async def command(bus: Bus, name: str, number: int) -> Command:
    match number % 4:
        case 0:
            return PlaceInstance(model_id=ModelId("maker/unknown"))
        case 1:
            return CancelGeneration(task_id=TaskId("none"), reason="a test")
        case 2:
            return DeleteInstance(instance_id=InstanceId("none"))
        case _:
            task_id = TaskId(f"storm-{name}")
            says = GenerationRequest(messages=(ChatMessage(role="user", content="hello"),), params=SamplingParams())
            await put_request(bus, task_id, says)
            return StartGeneration(
                task_id=task_id, model_id=MODEL, estimated_tokens=1, key="storm", reply_to=ApiId("tester")
            )


async def storm(stack: Stack, process: str, seed: int) -> list[MessageId]:
    """Kill a process while each ten commands are sent, and start it again; the ids of what was taken."""
    moments = random.Random(seed)
    bus = await connect(stack.nats_url, "home", "tester")
    taken: list[MessageId] = []
    try:
        for number in range(KILLS):
            await asyncio.to_thread(wait_until, partial(is_led, stack, number + 1), "a leader")
            sending = asyncio.create_task(commands(bus, number))
            await asyncio.sleep(moments.uniform(0, 0.08))  # the moment is what is random here
            stack.kill(process)
            stack.start([process])
            taken += await sending
    finally:
        await bus.close()
    return taken


def is_led(stack: Stack, times: int) -> bool:
    return stack.output("master").count("leading, epoch") >= times


async def logged(stack: Stack) -> list[Recorded]:
    store = await LogStore.open(stack.home / "log" / "exo.sqlite3", read_only=True)
    try:
        return [recorded async for recorded in store.stream()]
    finally:
        await store.close()


def decided(log: list[Recorded]) -> Counter[MessageId]:
    """How often each message had an outcome."""
    outcomes = (one.entry for one in log if isinstance(one.entry.event, CommandRejected | GenerationQueued))
    return Counter(entry.cause_id for entry in outcomes if entry.cause_id is not None)


def doubled(log: list[Recorded], taken: list[MessageId]) -> list[Recorded]:
    """What was recorded of commands that had no outcome, or more than one."""
    outcomes = decided(log)
    wrong = {message_id for message_id in taken if outcomes[message_id] != 1}
    return [one for one in log if one.entry.cause_id in wrong]


@pytest.mark.parametrize("process", ["master", "nats"])
def test_every_command_that_was_taken_has_one_outcome(stack: Stack, process: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    taken = asyncio.run(storm(stack, process, seed))
    assert len(taken) > KILLS * PER_KILL // 2

    wait_until(lambda: set(taken) <= set(decided(asyncio.run(logged(stack)))), "every command's outcome", 60)
    assert_sound(stack)
    log = asyncio.run(logged(stack))
    assert doubled(log, taken) == []
    finished = Counter(one.entry.event.task_id for one in log if isinstance(one.entry.event, GenerationFinished))
    assert set(finished.values()) == {1}
    epochs = [one.entry.event.epoch for one in log if isinstance(one.entry.event, MasterElected)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > KILLS
