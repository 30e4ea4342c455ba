"""What travels beside commands and events: payloads, tasks, chunks, gauges, beats, questions."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from log_events import history

from exo.bus.beats import publish_beat, subscribe_beats
from exo.bus.chunks import ENDED_BYTES, ChunkPublisher, read_chunks, subscribe_chunks
from exo.bus.client import Bus
from exo.bus.gauges import publish_gauges, subscribe_gauges
from exo.bus.queries import answer_queries, ask_outcome, ask_state
from exo.bus.questions import PART_MOST
from exo.bus.requests import INLINE_MOST, get_request, put_request
from exo.bus.streams import CHUNKS, REQUESTS, TASKS
from exo.bus.tasks import follow_tasks, last_task, publish_task, purge_tasks
from exo.domain.fold import fold
from exo.domain.ids import ApiId, InstanceId, MessageId, NodeId, RunnerId, TaskId
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.chunks import ChunkGenerated, TextPiece
from exo.domain.messages.events import Recorded
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.messages.tasks import CancelTask, GenerateTask, Task
from exo.domain.node import NodeGauges
from exo.domain.sampling import SamplingParams
from exo.domain.state import State
from exo.errors import Retryable

if TYPE_CHECKING:
    from conftest import NatsServer, Settled, Until

API, TASK, INSTANCE, NODE = ApiId("api-1"), TaskId("t1"), InstanceId("i1"), NodeId("a")


async def restart(bus: Bus, server: "NatsServer", until: "Until") -> None:
    """kill -9 the server and start it again; return when the connection and the streams are back."""
    again = asyncio.Event()

    async def reconnected() -> None:
        again.set()

    bus.on_reconnect(reconnected)
    server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    server.start()
    await asyncio.wait_for(again.wait(), 15)


# Payloads


def request(characters: int) -> GenerationRequest:
    return GenerationRequest(
        messages=(ChatMessage(role="user", content="ä" * characters),), params=SamplingParams(seed=1, stop=("x",))
    )


async def test_a_payload_comes_back_as_it_was(bus: Bus, other_bus: Bus) -> None:
    await put_request(bus, TASK, request(10))
    assert await get_request(other_bus, TASK) == request(10)
    assert await get_request(bus, TaskId("t2")) is None


async def test_a_payload_larger_than_a_message_goes_through_the_object_store(bus: Bus, other_bus: Bus) -> None:
    large = request(6 * 2**20)
    assert len(large.model_dump_json().encode()) > 12 * 2**20 > INLINE_MOST
    await put_request(bus, TASK, large)
    assert (await bus.js.stream_info(REQUESTS)).state.bytes < 1000
    assert await get_request(other_bus, TASK) == large


async def test_a_payload_outlives_a_kill_of_the_server(bus: Bus, nats_server: "NatsServer", until: "Until") -> None:
    await put_request(bus, TASK, request(10))
    await restart(bus, nats_server, until)
    assert await get_request(bus, TASK) == request(10)


async def test_a_payload_that_cannot_be_reached_is_retryable(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    nats_server.kill()
    await until(lambda: not bus.is_connected, "the loss to be noticed")
    with pytest.raises(Retryable, match="t1"):
        await get_request(bus, TASK)


# Tasks


def generate(number: int) -> GenerateTask:
    return GenerateTask(task_id=TaskId(f"t{number}"), reply_to=API, processes=("p1",))


async def tasks_after(bus: Bus, after: int, count: int) -> list[Task]:
    found: list[Task] = []
    async with asyncio.timeout(15), aclosing(follow_tasks(bus, INSTANCE, after)) as tasks:
        async for task in tasks:
            found.append(task)
            if len(found) == count:
                return found
    raise AssertionError("the stream ended")


async def test_tasks_come_in_order_and_only_those_of_the_instance(bus: Bus, other_bus: Bus) -> None:
    await publish_task(bus, INSTANCE, generate(1))
    await publish_task(bus, InstanceId("another"), generate(2))
    await publish_task(bus, INSTANCE, CancelTask(task_id=TaskId("t1")))
    await publish_task(bus, INSTANCE, generate(3))
    wanted = [generate(1), CancelTask(task_id=TaskId("t1")), generate(3)]
    assert await tasks_after(other_bus, 0, 3) == wanted


async def test_a_task_that_is_published_again_is_there_once(bus: Bus) -> None:
    for _ in range(3):
        await publish_task(bus, INSTANCE, generate(1))
    assert (await bus.js.stream_info(TASKS)).state.messages == 1


async def test_a_runner_reads_only_what_came_after_it_was_ready(bus: Bus) -> None:
    await publish_task(bus, INSTANCE, generate(1))
    after = await last_task(bus)
    await publish_task(bus, INSTANCE, generate(2))
    assert await tasks_after(bus, after, 1) == [generate(2)]


async def test_the_tasks_of_a_deleted_instance_are_forgotten_and_no_others(bus: Bus) -> None:
    await publish_task(bus, INSTANCE, generate(1))
    await publish_task(bus, InstanceId("another"), generate(2))
    await purge_tasks(bus, INSTANCE)
    await purge_tasks(bus, INSTANCE)
    assert (await bus.js.stream_info(TASKS)).state.messages == 1
    assert await last_task(bus) == 2


async def test_tasks_outlive_a_kill_of_the_server_without_gap_or_double(
    bus: Bus, nats_server: "NatsServer", until: "Until"
) -> None:
    reading = asyncio.create_task(tasks_after(bus, 0, 4))
    await publish_task(bus, INSTANCE, generate(1))
    await publish_task(bus, INSTANCE, generate(2))
    await restart(bus, nats_server, until)
    await publish_task(bus, INSTANCE, generate(3))
    await publish_task(bus, INSTANCE, generate(4))
    assert await reading == [generate(number) for number in (1, 2, 3, 4)]


# Chunks


async def send_texts(publisher: ChunkPublisher, *texts: str) -> None:
    for text in texts:
        await publisher.send(TASK, TextPiece(text=text))


def texts(chunks: Sequence[ChunkGenerated]) -> list[tuple[int, str]]:
    return [(chunk.index, chunk.piece.text) for chunk in chunks if isinstance(chunk.piece, TextPiece)]


async def test_chunks_are_numbered_and_reach_the_api_that_asked(
    bus: Bus, other_bus: Bus, until: "Until", settled: "Settled"
) -> None:
    mine: list[ChunkGenerated] = []
    others: list[ChunkGenerated] = []
    await subscribe_chunks(bus, API, mine.append)
    await subscribe_chunks(bus, ApiId("api-2"), others.append)
    await settled(bus)
    publisher = ChunkPublisher(other_bus)
    publisher.begin(TASK, API)
    await send_texts(publisher, "a", "b", "c")
    await until(lambda: len(mine) == 3, "the chunks")
    assert texts(mine) == [(0, "a"), (1, "b"), (2, "c")]
    assert others == []


async def test_chunks_that_were_missed_are_in_the_stream(bus: Bus, other_bus: Bus, settled: "Settled") -> None:
    publisher = ChunkPublisher(other_bus)
    publisher.begin(TASK, API)
    await send_texts(publisher, *"abcde")
    await settled(other_bus)
    async with asyncio.timeout(10):
        while (await bus.js.stream_info(CHUNKS)).state.messages < 5:
            pass
    assert texts(await read_chunks(bus, TASK, 2)) == [(2, "c"), (3, "d"), (4, "e")]
    assert await read_chunks(bus, TaskId("t2"), 0) == []


@pytest.mark.parametrize("ended", [False, True])
async def test_a_restart_of_the_server_loses_no_chunk(
    bus: Bus, other_bus: Bus, nats_server: "NatsServer", until: "Until", ended: bool
) -> None:
    received: dict[int, str] = {}

    def receive(chunk: ChunkGenerated) -> None:
        assert isinstance(chunk.piece, TextPiece)
        assert received.setdefault(chunk.index, chunk.piece.text) == chunk.piece.text

    await subscribe_chunks(bus, API, receive)
    publisher = ChunkPublisher(other_bus)
    publisher.begin(TASK, API)
    await send_texts(publisher, "a", "b")
    nats_server.kill()
    await send_texts(publisher, "c", "d")
    if ended:
        publisher.end(TASK)
    nats_server.start()
    await until(lambda: len(received) == 4, "all chunks")
    if not ended:
        await send_texts(publisher, "e")
        await until(lambda: len(received) == 5, "the chunk after the restart")
    assert received == dict(enumerate("abcd" if ended else "abcde"))


async def test_of_large_outputs_that_ended_the_last_are_sent_again(
    bus: Bus, other_bus: Bus, nats_server: "NatsServer", until: "Until", settled: "Settled"
) -> None:
    publisher = ChunkPublisher(other_bus)
    large, last = TextPiece(text="x" * (ENDED_BYTES // 10)), TaskId("last")
    for task_id in (TASK, last):
        publisher.begin(task_id, API)
        for _ in range(6):
            await publisher.send(task_id, large)
        publisher.end(task_id)
    await settled(other_bus)
    await restart(bus, nats_server, until)  # what is in the stream from now on was sent again
    async with asyncio.timeout(20):
        while len(await read_chunks(bus, last, 0)) < 6:
            pass
    assert await read_chunks(bus, TASK, 0) == []


async def test_an_unreadable_chunk_is_skipped(
    bus: Bus, other_bus: Bus, until: "Until", caplog: pytest.LogCaptureFixture, settled: "Settled"
) -> None:
    received: list[ChunkGenerated] = []
    await subscribe_chunks(bus, API, received.append)
    await settled(bus)
    await other_bus.client.publish(bus.subjects.chunk(API, TASK), b"no JSON")
    publisher = ChunkPublisher(other_bus)
    publisher.begin(TASK, API)
    await send_texts(publisher, "a")
    await until(lambda: len(received) == 1, "the readable one")
    assert "unreadable chunk" in caplog.text


# Gauges and beats


def gauges(load: float) -> NodeGauges:
    return NodeGauges(node_id=NODE, memory_available_bytes=1, disk_free_bytes=1, cpu_load=load)


async def test_gauges_arrive_before_and_after_a_restart_of_the_server(
    bus: Bus, other_bus: Bus, nats_server: "NatsServer", until: "Until", settled: "Settled"
) -> None:
    received: list[NodeGauges] = []
    await subscribe_gauges(bus, received.append)
    await settled(bus)
    await publish_gauges(other_bus, gauges(0.1))
    await until(lambda: received == [gauges(0.1)], "the gauges")
    nats_server.kill()
    await publish_gauges(other_bus, gauges(0.2))
    nats_server.start()
    async with asyncio.timeout(15):
        while received[-1] != gauges(0.3):
            await publish_gauges(other_bus, gauges(0.3))


async def test_beats_reach_the_worker_of_the_node(bus: Bus, other_bus: Bus, until: "Until", settled: "Settled") -> None:
    received: list[RunnerBeat] = []
    await subscribe_beats(bus, NODE, received.append)
    await settled(bus)
    beat = RunnerBeat(runner_id=RunnerId("r1"), process="p1", in_flight=1, step_seconds=0.5)
    await publish_beat(other_bus, NodeId("b"), beat)
    await other_bus.client.publish(bus.subjects.beat(NODE, RunnerId("r1")), b"no JSON")
    await publish_beat(other_bus, NODE, beat)
    await until(lambda: received == [beat], "the beat")


# Questions


async def test_a_question_that_nobody_answers_is_retryable_in_time(bus: Bus) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(Retryable, match="no master answered"):
        await ask_state(bus, 0.5)
    assert 0.5 <= asyncio.get_running_loop().time() - began < 2


async def test_a_question_waits_for_a_master_that_comes_late(bus: Bus, other_bus: Bus) -> None:
    asking = asyncio.create_task(ask_state(bus, 10))
    state = State()
    for one in history(8):
        state = fold(state, one)
    await serve(other_bus, state)
    assert await asking == state


async def test_a_state_that_is_larger_than_a_message_comes_in_parts(bus: Bus, other_bus: Bus) -> None:
    template = State()
    for recorded in history(20):
        template = fold(template, recorded)
    node = template.nodes[NodeId(next(iter(template.nodes)))]
    many = {NodeId(f"n{number}"): node.model_copy(update={"node_id": NodeId(f"n{number}")}) for number in range(20_000)}
    state = template.model_copy(update={"nodes": template.nodes.update(many)})
    assert len(state.model_dump_json()) > 2 * PART_MOST
    await serve(other_bus, state)
    assert await ask_state(bus, 20) == state


async def test_the_outcome_of_a_message_is_the_events_that_it_led_to(bus: Bus, other_bus: Bus) -> None:
    await serve(other_bus, State())
    assert await ask_outcome(bus, MessageId("start-0"), 5) == history(2, after=5)
    assert await ask_outcome(bus, MessageId("never"), 5) == []


async def test_an_answer_that_fails_is_asked_of_another_master(bus: Bus, other_bus: Bus) -> None:
    async def outcome(message_id: MessageId) -> list[Recorded]:
        raise Retryable("its disk is slow")

    await answer_queries(other_bus, State, outcome)
    asking = asyncio.create_task(ask_outcome(bus, MessageId("start-0"), 20))
    await serve(bus, State())
    assert await asking == history(2, after=5)


async def serve(bus: Bus, state: State) -> None:
    async def outcome(message_id: MessageId) -> list[Recorded]:
        return [one for one in history(20) if one.entry.cause_id == message_id]

    await answer_queries(bus, lambda: state, outcome)
