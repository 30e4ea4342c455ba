"""The queue of a model: its end, whose turn it is, and when one who was refused should come again."""

from collections.abc import Iterable

import pytest
from test_domain_cluster import LARGE, SMALL, Cluster, of_type, start

from exo.domain import limits
from exo.domain.decide import decide
from exo.domain.decide.queue import seconds_to_room
from exo.domain.ids import TaskId
from exo.domain.messages.events import CommandRejected, Event, GenerationDispatched, GenerationQueued
from exo.domain.model_card import ModelCard


@pytest.fixture
def cluster() -> Cluster:
    """One node of 16 GB."""
    cluster = Cluster()
    cluster.join()
    return cluster


def ask(cluster: Cluster, client: str, count: int) -> None:
    for number in range(count):
        cluster.start(f"{client}{number}", client=client)


def asked(cluster: Cluster, client: str, most: int, model: ModelCard = SMALL) -> Event:
    """What becomes of one more request where `most` may wait."""
    (event,) = decide(cluster.state, start("new", model, client=client), cluster.now, cluster.new_id, most)
    return event


def served(cluster: Cluster, events: Iterable[Event], seconds: float = 1.0) -> list[str]:
    """The tasks that get the one slot from now on, one after the other, each for so many seconds."""
    tasks: list[str] = []
    while dispatched := of_type(list(events), GenerationDispatched):
        (event,) = dispatched
        tasks.append(event.task_id)
        cluster.now += seconds
        events = cluster.ended(event.task_id)
    return tasks


def test_a_queue_has_an_end(cluster: Cluster) -> None:
    ask(cluster, "anna", 4)
    assert isinstance(asked(cluster, "ben", 5), GenerationQueued)
    refused = asked(cluster, "ben", 4)
    assert isinstance(refused, CommandRejected)
    assert refused.code == "queue_full"
    assert "4 requests wait for 'maker/small' already" in refused.reason


def test_a_queue_that_was_not_set_takes_so_many(cluster: Cluster) -> None:
    cluster.start("first")
    template = cluster.state.generations[TaskId("first")]
    many = {
        TaskId(f"t{number}"): template.model_copy(update={"task_id": TaskId(f"t{number}")})
        for number in range(limits.QUEUE_PER_MODEL - 1)
    }
    cluster.state = cluster.state.model_copy(update={"generations": cluster.state.generations.update(many)})
    assert cluster.refusal(start("one-too-many", client="ben")).code == "queue_full"


def test_each_model_has_a_queue_of_its_own(cluster: Cluster) -> None:
    ask(cluster, "anna", 3)
    assert isinstance(asked(cluster, "anna", 3, LARGE), GenerationQueued)


def test_what_runs_takes_no_place_in_the_queue(cluster: Cluster) -> None:
    cluster.place(slots=2)
    ask(cluster, "anna", 3)
    assert isinstance(asked(cluster, "anna", 2), GenerationQueued)


def test_the_last_tenth_of_the_places_is_for_clients_of_whom_none_waits(cluster: Cluster) -> None:
    ask(cluster, "anna", 18)
    refused = asked(cluster, "anna", 20)
    assert isinstance(refused, CommandRejected)
    assert (refused.code, "the last places are for others" in refused.reason) == ("queue_full", True)
    assert isinstance(asked(cluster, "ben", 20), GenerationQueued)
    ask(cluster, "ben", 1)
    assert isinstance(asked(cluster, "ben", 20), CommandRejected)
    ask(cluster, "carla", 1)
    assert isinstance(asked(cluster, "dora", 20), CommandRejected)


def test_two_hundred_requests_do_not_hold_back_the_one_of_another(cluster: Cluster) -> None:
    instance = cluster.place(slots=1, ready=False)
    ask(cluster, "anna", 200)
    ask(cluster, "ben", 1)
    tasks = served(cluster, cluster.make_ready(instance))
    assert tasks[:3] == ["anna0", "ben0", "anna1"]
    assert len(tasks) == 201


def test_whoever_comes_again_and_again_gets_every_other_turn(cluster: Cluster) -> None:
    cluster.place(slots=1)
    ask(cluster, "anna", 5)
    running, turns = "anna0", ["anna0"]
    for number in range(4):
        if running.startswith("anna"):
            cluster.start(f"ben{number}", client="ben")
        cluster.now += 1
        (event,) = of_type(cluster.ended(running), GenerationDispatched)
        running = event.task_id
        turns.append(running)
    assert turns == ["anna0", "ben0", "anna1", "ben2", "anna2"]


def test_several_slots_are_shared_evenly(cluster: Cluster) -> None:
    instance = cluster.place(slots=6, ready=False)
    ask(cluster, "anna", 20)
    ask(cluster, "ben", 20)
    ask(cluster, "carla", 1)
    tasks = [one.task_id for one in of_type(cluster.make_ready(instance), GenerationDispatched)]
    assert tasks == ["anna0", "ben0", "carla0", "anna1", "ben1", "anna2"]


def test_the_next_is_of_who_has_fewest_running(cluster: Cluster) -> None:
    cluster.place(slots=3)
    ask(cluster, "anna", 5)
    cluster.start("ben0", client="ben")
    cluster.start("ben1", client="ben")
    turns: list[str] = []
    for over in ("anna0", "ben0", "anna1"):
        cluster.now += 1
        turns += [one.task_id for one in of_type(cluster.ended(over), GenerationDispatched)]
    assert turns == ["ben0", "ben1", "anna3"]


def test_one_who_is_refused_hears_when_to_come_again(cluster: Cluster) -> None:
    cluster.place(slots=2)
    ask(cluster, "anna", 4)
    refused = asked(cluster, "anna", 2)
    assert isinstance(refused, CommandRejected)
    assert refused.retry_after == limits.ROOM_UNKNOWN
    for task, seconds in (("anna0", 20), ("anna1", 10)):
        cluster.now += seconds
        cluster.ended(task)
    ask(cluster, "ben", 2)
    refused = asked(cluster, "carla", 2)
    assert isinstance(refused, CommandRejected)
    assert refused.retry_after == 13, "they took 20 and 30 s, and two run side by side"
    assert "try again in 13 s" in refused.reason


@pytest.mark.parametrize(("took", "expected"), [(0.01, 1), (3600.0, limits.ROOM_MOST)])
def test_the_estimate_has_bounds(cluster: Cluster, took: float, expected: int) -> None:
    cluster.place(slots=1)
    ask(cluster, "anna", 2)
    cluster.now += took
    cluster.ended("anna0")
    assert seconds_to_room(cluster.state, SMALL.model_id) == expected


def test_what_never_ran_tells_nothing_of_how_long_one_takes(cluster: Cluster) -> None:
    cluster.place(slots=1)
    ask(cluster, "anna", 2)
    cluster.now += 500
    cluster.passes(limits.QUEUED)
    assert seconds_to_room(cluster.state, SMALL.model_id) == limits.ROOM_UNKNOWN
