"""Finding, explaining and counting events in a real file."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from log_events import BEGIN, CARD, FACTS, INSTANCE, NODE, RUNNER, history

from exo.domain.advance import advance
from exo.domain.fold import fold
from exo.domain.ids import ApiId, MessageId, NodeId, RunnerId, TaskId
from exo.domain.messages.commands import (
    CancelGeneration,
    Command,
    DeleteInstance,
    LinkInstances,
    PlaceInstance,
    StartGeneration,
    UnlinkInstances,
)
from exo.domain.messages.events import Entry, Event, MasterElected, Recorded
from exo.domain.messages.reports import DownloadSeen, GenerationEnded, NodeSeen, Report, RunnerStatusSeen
from exo.domain.node import Holding
from exo.domain.prefill import PrefillAttempt
from exo.domain.react import react
from exo.domain.runner_status import Connecting, Failed, Loading, Ready, Warming
from exo.domain.sampling import Timings, Usage
from exo.domain.state import State
from exo.errors import Rejected
from exo.log.explain import searching
from exo.log.explain.diff import diff_between
from exo.log.explain.entities import Entity
from exo.log.explain.searching import Filter, find_entity, first_matching, last_matching, matching
from exo.log.explain.stats import collect
from exo.log.explain.story import STEPS_MOST, Story
from exo.log.explain.why import why
from exo.log.store import LogStore

ENGINE = FACTS.model_copy(update={"engines": ("mlx",)})
API = "api-1"


class History:
    """Events as the real decisions make them, one message after the other."""

    def __init__(self) -> None:
        self.state = State()
        self.now = BEGIN
        self.log: list[Recorded] = []
        self._ids = 0
        self._record(MasterElected(node_id=NODE, epoch=1), None, NODE)

    def send(self, message: Command | Report, source: str, message_id: str) -> list[str]:
        """The types of the events that a message led to."""
        self.now += 1
        before = len(self.log)
        for unit in react(self.state, message, self.now, self._new_id):
            for event in unit:
                self._record(event, MessageId(message_id), source)
        return [one.entry.event.type for one in self.log[before:]]

    def wait(self, seconds: float, *silent: NodeId) -> None:
        """Time passes, in which some nodes are not heard of."""
        beats = {node_id: self.now for node_id in silent}
        self.now += seconds
        for event in advance(self.state, self.now, self._new_id, beats, {}):
            self._record(event, None, NODE)

    def runner(self) -> str:
        """The one runner there is."""
        (runner_id,) = self.state.runners
        return runner_id

    def becomes_ready(self, process: str, runner_id: RunnerId | None = None) -> None:
        """The runner, or the only one, comes up."""
        for status in (Connecting(), Loading(), Warming(), Ready(tokens_per_second=12.5)):
            self.reports(process, status, runner_id)

    def reports(
        self,
        process: str,
        status: Connecting | Loading | Warming | Ready | Failed,
        runner_id: RunnerId | None = None,
    ) -> None:
        """The runner, or the only one, reports a status."""
        report = RunnerStatusSeen(runner_id=runner_id or next(iter(self.state.runners)), process=process, status=status)
        self.send(report, report.runner_id, f"{process}-{status.type}")

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def _record(self, event: Event, cause: MessageId | None, source: str) -> None:
        entry = Entry(recorded_at=self.now, cause_id=cause, source=source, event=event)
        recorded = Recorded(position=self.state.position + 1, entry=entry)
        self.state = fold(self.state, recorded)
        self.log.append(recorded)


def joins(status: str = "ready") -> NodeSeen:
    holding = Holding.model_validate({"card": CARD, "status": status})
    return NodeSeen(node_id=NODE, boot_id="boot", facts=ENGINE, available_bytes=10**9, holdings=(holding,))


def asks(task: str, key: str = "anna") -> StartGeneration:
    return StartGeneration(
        task_id=TaskId(task), model_id=CARD.model_id, estimated_tokens=3, key=key, reply_to=ApiId(API)
    )


async def stored(path: Path, events: list[Recorded]) -> LogStore:
    store = await LogStore.open(path / "log" / "exo.sqlite3", durable=False)
    await store.append(events)
    return store


async def explained(path: Path, past: History, text: str, at: int | None = None) -> Story:
    store = await stored(path, past.log)
    try:
        return await why(store, text, store.position if at is None else at)
    finally:
        await store.close()


def told(story: Story) -> list[tuple[str, int]]:
    return [(step.recorded.entry.event.type, step.depth) for step in story.steps]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LogStore]:
    """Forty events of one node, of which the writer goes on."""
    opened = await stored(tmp_path, history(40))
    yield opened
    await opened.close()


async def test_a_runner_goes_back_to_the_request_that_called_for_it(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    assert past.send(asks("task-a"), API, "start-a") == ["GenerationQueued", "InstancePlaced"]
    past.becomes_ready("process-1")
    story = await explained(tmp_path, past, past.runner())
    assert told(story) == [
        ("GenerationQueued", 0),
        ("InstancePlaced", 1),
        ("RunnerStarted", 2),
        ("RunnerLoading", 2),
        ("RunnerWarming", 2),
        ("RunnerReady", 2),
    ]
    queued, placed, started = story.steps[:3]
    assert "key anna" in queued.text
    assert queued.cause.text == "command StartGeneration start-a from api api-1"
    assert "host-ä can give" in placed.text
    assert placed.because == (queued.position,)
    assert started.because == (placed.position,)
    assert story.last.text == f"runner {past.runner()} is ready, 12.5 tokens/s at warm-up"


async def test_a_node_that_came_later_brought_the_first_waiting_request_forward(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(asks("task-a"), API, "start-a")
    past.wait(11, NODE)
    past.send(asks("task-b"), API, "start-b")
    types = past.send(joins(), NODE, "again")
    assert types == ["NodeJoined", "InstancePlaced"]
    (instance_id,) = past.state.instances
    story = await explained(tmp_path, past, instance_id)
    assert told(story) == [("GenerationQueued", 0), ("NodeJoined", 0), ("InstancePlaced", 1)]
    assert "task-a" in story.steps[0].text


async def test_a_placement_that_somebody_asked_for_has_no_request_behind_it(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(asks("task-a"), API, "start-a")
    past.send(PlaceInstance(model_id=CARD.model_id), API, "place")
    newest = max(past.state.instances.values(), key=lambda one: one.instance_id)
    story = await explained(tmp_path, past, newest.instance_id)
    assert told(story) == [("InstancePlaced", 0)]
    assert story.steps[0].cause.text == "command PlaceInstance place from api api-1"


async def test_a_request_that_failed_goes_back_to_the_failure_of_its_runner(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(asks("task-a"), API, "start-a")
    past.becomes_ready("process-1")
    past.reports("process-1", Failed(reason="out of memory"))
    story = await explained(tmp_path, past, "task-a")
    assert told(story)[-2:] == [("GenerationFinished", 0), ("RunnerFailed", 2)]
    finished, failed = story.steps[-2:]
    assert finished.because[-1] == failed.position
    assert failed.text.endswith("failed: out of memory")
    assert failed.cause.name == finished.cause.name == "RunnerStatusSeen"
    assert "runner_failed" in story.last.text


async def test_a_request_shows_only_the_process_that_it_ran_in(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(PlaceInstance(model_id=CARD.model_id), API, "place")
    past.becomes_ready("process-1")
    past.reports("process-1", Failed(reason="first"))
    past.becomes_ready("process-2")
    past.send(asks("task-a"), API, "start-a")
    ended = GenerationEnded(
        task_id=TaskId("task-a"),
        process="process-2",
        finish_reason="stop",
        usage=Usage(prompt_tokens=7, completion_tokens=5),
        timings=Timings(wait=0.1),
    )
    past.send(ended, past.runner(), "end-a")
    past.reports("process-2", Failed(reason="second"))
    story = await explained(tmp_path, past, "task-a")
    assert [step.text for step in story.steps if "process" in step.text] == [
        f"runner {past.runner()} was started as process process-2"
    ]
    assert not any("failed" in step.text for step in story.steps)
    assert story.last.cause.text == f"report GenerationEnded end-a from runner {past.runner()}"


async def test_a_request_that_waits_shows_what_it_waits_for(tmp_path: Path) -> None:
    past = History()
    past.send(joins("obtainable"), NODE, "seen")
    past.send(PlaceInstance(model_id=CARD.model_id), API, "place")
    past.send(DownloadSeen(node_id=NODE, model_id=CARD.model_id, status="started"), NODE, "fetch")
    past.send(asks("task-a"), API, "start-a")
    past.send(DownloadSeen(node_id=NODE, model_id=CARD.model_id, status="failed", reason="no space"), NODE, "broken")
    story = await explained(tmp_path, past, "task-a")
    types = [name for name, _ in told(story)]
    assert types[0] == "InstancePlaced"
    assert {"DownloadFailed", "InstanceFailed", "GenerationFinished"} <= set(types)
    assert "no space" in story.last.text
    failed = next(step for step in story.steps if step.recorded.entry.event.type == "InstanceFailed")
    assert failed.because[-1] == next(
        step.position for step in story.steps if step.recorded.entry.event.type == "DownloadFailed"
    )


async def test_a_request_shows_who_prefilled_for_it_and_since_when(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    for name in ("prefill", "decode"):
        past.send(PlaceInstance(model_id=CARD.model_id), API, f"place-{name}")
    prefill, decode = sorted(past.state.instances)
    for instance_id in (prefill, decode):
        past.becomes_ready(f"process-{instance_id}", past.state.instances[instance_id].runner_ids[0])
    past.send(LinkInstances(prefill_id=prefill, decode_id=decode), API, "link")
    past.send(asks("task-a"), API, "start-a")
    ended = GenerationEnded(
        task_id=TaskId("task-a"),
        process=f"process-{decode}",
        finish_reason="stop",
        usage=Usage(prompt_tokens=900),
        timings=Timings(wait=0.7),
        prefill=PrefillAttempt(instance_id=prefill, tokens=899, asked_after=0.1, seconds=0.5),
    )
    past.send(ended, "runner", "end-a")
    past.send(UnlinkInstances(decode_id=decode), API, "unlink")
    story = await explained(tmp_path / "a", past, "task-a")
    assert story.last.text.endswith(f"instance {prefill} prefilled 899 tokens of it, which took 0.50 s of the wait")
    linked = next(step for step in story.steps if step.recorded.entry.event.type == "InstancesLinked")
    assert linked.position in story.last.because
    assert linked.cause.name == "LinkInstances"
    instance = await explained(tmp_path / "b", past, decode)
    assert [name for name, _ in told(instance)][-1] == "InstancesUnlinked"
    assert instance.last.cause.name == "UnlinkInstances"
    assert instance.last.text == f"instance {prefill} prefills for instance {decode} no more: unlinked by a command"


async def test_a_lost_node_is_why_its_instance_is_gone(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(PlaceInstance(model_id=CARD.model_id), API, "place")
    (instance_id,) = past.state.instances
    past.wait(20, NODE)
    story = await explained(tmp_path, past, instance_id)
    assert told(story) == [("InstancePlaced", 0), ("InstanceDeleted", 0), ("NodeLost", 0)]
    assert story.steps[1].because == (story.steps[0].position, story.steps[2].position)
    assert story.steps[1].cause.text == "the master on host-ä by itself"
    node = await explained(tmp_path / "again", past, "host")
    assert [name for name, _ in told(node)] == ["NodeJoined", "InstancePlaced", "InstanceDeleted", "NodeLost"]


async def test_commands_that_end_something_are_told_apart(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(asks("task-a"), API, "start-a")
    past.send(asks("task-b"), API, "start-b")
    past.send(CancelGeneration(task_id=TaskId("task-a"), reason="the client left"), API, "cancel")
    (instance_id,) = past.state.instances
    past.send(DeleteInstance(instance_id=instance_id), API, "delete")
    cancelled = await explained(tmp_path / "a", past, "task-a")
    assert cancelled.last.cause.name == "CancelGeneration"
    deleted = await explained(tmp_path / "b", past, "task-b")
    assert deleted.last.cause.name == "DeleteInstance"
    assert [name for name, _ in told(deleted)][-1] == "InstanceDeleted"
    command = await explained(tmp_path / "c", past, "delete")
    assert [name for name, _ in told(command)] == ["GenerationFinished", "InstanceDeleted"]


async def test_the_past_knows_nothing_of_what_came_later(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(asks("task-a"), API, "start-a")
    placed = past.state.position
    past.becomes_ready("process-1")
    story = await explained(tmp_path, past, past.runner(), at=placed)
    assert told(story) == [("GenerationQueued", 0), ("InstancePlaced", 1)]
    with pytest.raises(Rejected, match="no event of this log names"):
        await explained(tmp_path / "again", past, "process-1", at=placed)


async def test_a_long_story_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    past.send(PlaceInstance(model_id=CARD.model_id), API, "place")
    for number in range(40):
        past.becomes_ready(f"process-{number}")
        past.reports(f"process-{number}", Failed(reason=f"fault {number}"))
    story = await explained(tmp_path, past, past.runner())
    assert len(story.steps) == STEPS_MOST
    assert told(story)[0] == ("InstancePlaced", 0)
    assert "fault 39" in story.steps[-1].text
    assert story.left_out > 0


async def test_of_a_key_that_nobody_made_the_error_says_what_shows_it(store: LogStore) -> None:
    with pytest.raises(Rejected, match="exo log tail --entity anna"):
        await why(store, "anna", store.position)


async def test_what_is_found_is_the_same_however_small_the_windows_are(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = Filter(frozenset([Entity("generation", "task-3")]))
    model = Filter(frozenset([Entity("model", CARD.model_id)]), frozenset(["GenerationQueued"]))

    async def everything() -> list[list[int]]:
        return [
            [one.position async for one in matching(store, generation, 0, 40)],
            [one.position async for one in matching(store, model, 8, 20)],
            [one.position for one in await last_matching(store, model, 3, 0, 39)],
            [one.position for one in await first_matching(store, model, 2, 6, 40)],
        ]

    expected = [[15, 16, 17], [9, 12, 15, 18], [33, 36, 39], [9, 12]]
    assert await everything() == expected
    for window in (1, 2, 3, 7):
        monkeypatch.setattr(searching, "WINDOW", window)
        assert await everything() == expected
        assert await find_entity(store, "task-10", 40) == Entity("generation", "task-10")


async def test_ids_with_quotes_and_wildcards_are_found_as_they_are(tmp_path: Path) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    for number, key in enumerate(['the "one"', "50%_off", "back\\slash", "schön"]):
        past.send(asks(f"task-{number}", key), API, f"start-{number}")
    store = await stored(tmp_path, past.log)
    for key in ('the "one"', "50%_off", "back\\slash", "schön"):
        entity = await find_entity(store, key, store.position)
        assert entity == Entity("key", key)
        found = [one async for one in matching(store, Filter(frozenset([entity])), 0, store.position)]
        assert [one.entry.event.type for one in found] == ["GenerationQueued"]
    with pytest.raises(Rejected):
        await find_entity(store, "50_", store.position)
    await store.close()


async def test_a_host_or_a_short_name_is_found_in_any_case(store: LogStore) -> None:
    assert await find_entity(store, "MODEL", 40) == Entity("model", CARD.model_id)
    assert await find_entity(store, "Host", 40) == Entity("node", NODE)
    assert await find_entity(store, "runner", 40) == Entity("runner", RUNNER)
    assert await find_entity(store, "inst", 40) == Entity("instance", INSTANCE)


async def test_a_difference_is_the_same_by_way_of_a_snapshot(store: LogStore) -> None:
    expected = (await diff_between(store, 3, 38)).plain()
    state = State()
    for recorded in history(30):
        state = fold(state, recorded)
    await store.write_snapshot(state)
    assert (await diff_between(store, 3, 38)).plain() == expected
    assert expected["backwards"] is False


async def test_statistics_follow_from_the_events(store: LogStore) -> None:
    found = await collect(store)
    events = history(40)
    assert (found.events, found.position) == (40, 40)
    assert found.counts["GenerationQueued"] == 12
    bodies = [one.entry.event.model_dump_json() for one in events if one.entry.event.type == "NodeJoined"]
    assert found.body_bytes["NodeJoined"] == len(bodies[0].encode()) != len(bodies[0])
    assert (found.first, found.last) == (events[0].entry.recorded_at, events[-1].entry.recorded_at)
    assert sum(found.days().values()) == sum(found.hours.values()) == 40
    assert [(one.position, one.epoch, one.node_id) for one in found.leads] == [(1, 1, NODE)]
    assert found.file_bytes + found.wal_bytes >= found.data_bytes > sum(found.body_bytes.values())
    assert found.bytes_per_event == found.data_bytes / 40
    span = events[-1].entry.recorded_at - events[0].entry.recorded_at
    assert 0 < span < 3600
    assert found.per_hour == pytest.approx(40 / (span / 3600))


async def test_what_the_wal_holds_again_is_not_counted_again(store: LogStore) -> None:
    before = (await collect(store)).data_bytes
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    after = await collect(store)
    assert (after.data_bytes, after.file_bytes, after.wal_bytes) == (before, before, 0)


async def test_the_longest_gaps_are_found_with_their_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past = History()
    past.send(joins(), NODE, "seen")
    for number, pause in enumerate((30.0, 7000.0, 1.0, 200.0)):
        past.now += pause
        past.send(CancelGeneration(task_id=TaskId("none"), reason="x"), API, f"message-{number}")
    store = await stored(tmp_path, past.log)
    for window in (searching.WINDOW, 1, 2):
        monkeypatch.setattr("exo.log.explain.stats.WINDOW", window)
        found = await collect(store)
        assert [(gap.seconds, gap.before) for gap in found.gaps[:3]] == [(7001.0, 4), (201.0, 6), (31.0, 3)]
        assert found.gaps[0].since == past.log[2].entry.recorded_at
    await store.close()


async def test_an_empty_log_has_no_statistics_and_no_names(tmp_path: Path) -> None:
    store = await stored(tmp_path, [])
    found = await collect(store)
    assert (found.events, found.gaps, found.first, found.bytes_per_event) == (0, [], None, 0.0)
    with pytest.raises(Rejected, match="no event of this log"):
        await why(store, "anything", 0)
    await store.close()


async def test_nothing_is_missed_while_a_writer_appends(store: LogStore, tmp_path: Path) -> None:
    reader = await LogStore.open(tmp_path / "log" / "exo.sqlite3", read_only=True)
    seen: list[int] = []
    more = history(60, after=40)
    async for recorded in matching(reader, Filter(types=frozenset(["GenerationQueued"])), 0, 40):
        seen.append(recorded.position)
        await store.append(more[: len(seen)][-1:])
    assert seen == list(range(6, 40, 3))
    assert await reader.refresh() == 40 + len(seen)
    assert (await collect(reader)).events == 40 + len(seen)
    await reader.close()


async def test_no_reader_keeps_the_file_locked(store: LogStore, tmp_path: Path) -> None:
    reader = await LogStore.open(tmp_path / "log" / "exo.sqlite3", read_only=True)
    async for _ in matching(reader, Filter(), 0, 40):
        with closing(sqlite3.connect(tmp_path / "log" / "exo.sqlite3")) as other:
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0
        break
    await reader.close()
