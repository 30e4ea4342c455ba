"""State as data: what it holds, what must hold in it, what follows from it, and that equal States are equal bytes."""

import json
import pickle
from copy import copy, deepcopy

import pytest
from immutables import Map
from pydantic import TypeAdapter, ValidationError
from test_domain_cluster import SMALL, Cluster, of_type

from exo.bus.subjects import Subjects
from exo.domain.effects import PublishTask, PurgeTasks, cancel, effects, generate, outstanding
from exo.domain.ids import ApiId, InstanceId, NodeId, RunnerId, TaskId, is_token
from exo.domain.invariants import violations
from exo.domain.messages.commands import CancelGeneration, DeleteInstance
from exo.domain.messages.events import Event, GenerationDispatched, GenerationFinished, GenerationQueued
from exo.domain.messages.tasks import CancelTask, GenerateTask
from exo.domain.node import Holding
from exo.domain.persistent_map import PersistentMap
from exo.domain.sampling import SamplingParams
from exo.domain.state import ENDED_KEPT, State
from exo.errors import Rejected

MAPS: TypeAdapter[Map[str, Holding]] = TypeAdapter(PersistentMap[str, Holding])


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


# Copies


def test_a_copy_with_other_values_is_what_pydantic_gives_and_leaves_the_original_alone(cluster: Cluster) -> None:
    before, text = cluster.state, cluster.state.model_dump_json()
    changes = {"epoch": 7, "master": None, "ended": ()}
    after = before.replaced(changes)
    assert after == before.model_copy(update=changes) != before
    assert after.model_dump_json() == before.model_copy(update=changes).model_dump_json()
    assert before.model_dump_json() == text
    for again in (copy(after), deepcopy(after), pickle.loads(pickle.dumps(after)), after.replaced({})):
        assert again == after
    with pytest.raises(ValidationError, match="frozen"):
        after.epoch = 8


# Effects


def test_a_dispatched_generation_becomes_a_task_for_its_processes(cluster: Cluster) -> None:
    instance = cluster.place()
    events = cluster.start("t1", prompt="Hello")
    (dispatched,) = of_type(events, GenerationDispatched)
    process = cluster.runner_of(instance).process
    task = GenerateTask(task_id=TaskId("t1"), reply_to=ApiId("api"), processes=(process,), log_output=True)
    assert effects(cluster.state, dispatched) == [PublishTask(instance.instance_id, task)]


def test_a_generation_that_is_over_by_then_becomes_no_task(cluster: Cluster) -> None:
    instance = cluster.place()
    (dispatched,) = of_type(cluster.start("t1"), GenerationDispatched)
    (requested,) = cluster.tell(CancelGeneration(task_id=TaskId("t1"), reason=""))
    cluster.ended("t1")
    assert effects(cluster.state, dispatched) == []
    assert effects(cluster.state, requested) == []
    deleted = cluster.tell(DeleteInstance(instance_id=instance.instance_id))[-1]
    assert effects(cluster.state, deleted) == [PurgeTasks(instance.instance_id)]


def test_a_cancellation_becomes_a_task(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    (requested,) = cluster.tell(CancelGeneration(task_id=TaskId("t1"), reason="the client left"))
    wanted = PublishTask(instance.instance_id, CancelTask(task_id=TaskId("t1")))
    assert effects(cluster.state, requested) == [wanted]


def test_most_events_have_no_effect(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    cluster.ended("t1")
    quiet = [one.entry.event for one in cluster.log if not isinstance(one.entry.event, GenerationDispatched)]
    assert all(effects(cluster.state, event) == [] for event in quiet)


def test_what_runs_and_what_is_being_cancelled_is_outstanding_in_the_order_of_the_queue(cluster: Cluster) -> None:
    cluster.place(slots=2)
    for task in ("t9", "t1", "waiting"):
        cluster.start(task)
    cluster.tell(CancelGeneration(task_id=TaskId("t9"), reason=""))
    running = [cluster.state.generations[TaskId(task)] for task in ("t9", "t1")]
    assert outstanding(cluster.state) == [
        *(generate(cluster.state, generation) for generation in running),
        cancel(running[0]),
    ]
    assert outstanding(State()) == []


def test_a_queued_generation_has_no_task(cluster: Cluster) -> None:
    cluster.start("t1")
    with pytest.raises(ValueError, match="t1"):
        generate(cluster.state, cluster.state.generations[TaskId("t1")])


# The tail of ended generations


def test_only_the_last_ended_generations_stay_in_state(cluster: Cluster) -> None:
    for number in range(ENDED_KEPT + 5):
        task_id = TaskId(f"t{number}")
        cluster.record(
            GenerationQueued(
                task_id=task_id, model_id=SMALL.model_id, estimated_tokens=1, key="anna", reply_to=ApiId("api")
            ),
            GenerationFinished(task_id=task_id, finish_reason="stop"),
        )
    assert len(cluster.state.ended) == ENDED_KEPT
    assert (cluster.state.ended[0].task_id, cluster.state.ended[-1].task_id) == ("t5", f"t{ENDED_KEPT + 4}")


# Invariants


def test_a_sound_state_violates_nothing(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    assert violations(cluster.state) == []


def test_each_broken_invariant_is_named(cluster: Cluster) -> None:
    instance = cluster.place()
    cluster.start("t1")
    state, (runner_id,) = cluster.state, instance.runner_ids
    without_instance = state.model_copy(update={"instances": Map()})
    assert violations(without_instance) == [
        f"runner {runner_id} has no instance",
        "generation t1 is on an instance that is gone",
    ]
    without_runner = state.model_copy(update={"runners": Map()})
    assert violations(without_runner) == [f"instance {instance.instance_id} lacks its runner {runner_id}"]
    without_node = state.model_copy(update={"nodes": Map()})
    assert violations(without_node) == [f"instance {instance.instance_id} is on the unknown node a"]


# Data


def test_a_state_comes_back_from_its_json_the_same(cluster: Cluster) -> None:
    cluster.place()
    cluster.start("t1")
    text = cluster.state.model_dump_json()
    again = State.model_validate_json(text)
    assert again == cluster.state
    assert again.model_dump_json() == text


def test_maps_that_are_equal_are_the_same_bytes_whatever_the_order_they_grew_in() -> None:
    holding = Holding(card=SMALL, status="ready")
    keys = [f"key{number}" for number in range(200)]
    forwards, backwards = Map[str, Holding](), Map[str, Holding]()
    for key in keys:
        forwards = forwards.set(key, holding)
    for key in reversed(keys):
        backwards = backwards.set(key, holding)
    assert MAPS.dump_json(forwards) == MAPS.dump_json(backwards)
    assert list(json.loads(MAPS.dump_json(forwards))) == sorted(keys)
    assert MAPS.validate_json(MAPS.dump_json(forwards)) == backwards


def test_a_map_checks_what_it_is_given() -> None:
    with pytest.raises(ValidationError):
        MAPS.validate_python({"key": {"card": None, "status": "ready"}})
    with pytest.raises(ValidationError):
        MAPS.validate_python(Map({"key": 1}))


def test_setting_a_key_leaves_the_past_as_it_was(cluster: Cluster) -> None:
    before = cluster.state
    cluster.join("b")
    assert set(before.nodes) == {"a"}
    assert set(cluster.state.nodes) == {"a", "b"}


def test_records_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        State().position = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra"):
        State.model_validate({"positon": 3})
    with pytest.raises(ValidationError, match="finite"):
        SamplingParams(temperature=float("inf"))


def test_a_number_of_kind_is_part_of_every_event_and_frozen() -> None:
    adapter: TypeAdapter[Event] = TypeAdapter(Event)
    logged = {"type": "GenerationDispatched", "version": 1, "task_id": "t1", "instance_id": "i1"}
    event = adapter.validate_python(logged)
    assert adapter.dump_python(event) == logged
    with pytest.raises(ValidationError):
        adapter.validate_python(logged | {"version": 2})
    with pytest.raises(ValidationError):
        adapter.validate_python(logged | {"type": "GenerationSent"})


# Ids and subjects


@pytest.mark.parametrize("text", ["a", "A-z_09", "0123456789abcdef"])
def test_letters_digits_dashes_and_underscores_are_a_token(text: str) -> None:
    assert is_token(text)


@pytest.mark.parametrize("text", ["", " ", "a.b", "*", ">", "a b", "a\n", "maker/model", "ä", "a\x00"])
def test_separators_wildcards_and_the_rest_are_none(text: str) -> None:
    assert not is_token(text)
    subjects = Subjects("home")
    for build in (
        lambda: subjects.task(InstanceId(text)),
        lambda: subjects.request(TaskId(text)),
        lambda: subjects.chunk(ApiId("api"), TaskId(text)),
        lambda: subjects.chunk(ApiId(text), TaskId("t1")),
        lambda: subjects.beat(NodeId("a"), RunnerId(text)),
        lambda: subjects.command(text),
        lambda: Subjects(text).root,
    ):
        with pytest.raises(Rejected) as refused:
            build()
        assert refused.value.code == "invalid_id"


def test_every_subject_begins_with_the_clusters_own_prefix() -> None:
    subjects = Subjects("lab-2")
    assert subjects.chunk(ApiId("api"), TaskId("t1")) == "exo.lab-2.chunk.api.t1"
    assert subjects.chunks_for(ApiId("api")) == "exo.lab-2.chunk.api.*"
    assert subjects.all_of("event") == "exo.lab-2.event.>"
    assert subjects.event("NodeLost") == "exo.lab-2.event.NodeLost"
