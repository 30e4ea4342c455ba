"""What a master makes of the signs of life that it hears."""

from exo.domain.ids import ApiId, ModelId, NodeId, TaskId
from exo.domain.limits import UNREAD
from exo.domain.messages.beat import ApiBeat
from exo.domain.node import NodeGauges
from exo.domain.state import Generation, State
from exo.master.signs import Signs
from tests import builders

ASKED, OTHER = ApiId("asked"), ApiId("other")
TASK = TaskId("task")
NODE = NodeId("node")
BEGAN = 1000.0
WALL = 5000.0
"""What the wall clock is ahead of the monotonic one."""


class Clock:
    """Shows what a test sets."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now


def state(needs_reader: bool = True) -> State:
    """A node, and a generation that one API process asked for."""
    generation = Generation(
        task_id=TASK,
        model_id=ModelId("maker/model"),
        key="k",
        reply_to=ASKED,
        queued_at=0,
        queued_position=1,
        needs_reader=needs_reader,
    )
    return builders.state([builders.node()], generations={TASK: generation})


def read_at(signs: Signs, clock: Clock) -> float:
    """When the generation was last read, by the monotonic clock."""
    return signs.last_read(state(), BEGAN, WALL + clock.now)[TASK] - WALL


def test_a_generation_is_read_while_the_api_process_that_asked_lives() -> None:
    clock = Clock()
    signs = Signs(clock)
    assert read_at(signs, clock) == BEGAN
    clock.now += 10
    signs.of_api(ApiBeat(api_id=ASKED))
    clock.now += 5
    signs.of_api(ApiBeat(api_id=OTHER))
    assert read_at(signs, clock) == BEGAN + 10


def test_it_is_read_too_while_another_says_so_and_no_longer() -> None:
    clock = Clock()
    signs = Signs(clock)
    signs.of_api(ApiBeat(api_id=ASKED))
    clock.now += 10
    signs.of_api(ApiBeat(api_id=OTHER, reading=(TASK,)))
    clock.now += 1
    assert read_at(signs, clock) == BEGAN + 10
    signs.of_api(ApiBeat(api_id=OTHER))
    assert read_at(signs, clock) == BEGAN


def test_an_api_process_that_is_silent_for_long_is_forgotten_and_what_it_asked_for_unread() -> None:
    clock = Clock()
    signs = Signs(clock)
    signs.of_api(ApiBeat(api_id=ASKED))
    clock.now += UNREAD + 1
    signs.of_api(ApiBeat(api_id=OTHER))
    assert read_at(signs, clock) == BEGAN


def test_what_goes_on_by_itself_is_not_looked_for() -> None:
    assert Signs().last_read(state(needs_reader=False), BEGAN, WALL) == {}


def test_a_master_that_has_just_begun_has_seen_all_nodes_then() -> None:
    clock = Clock()
    signs = Signs(clock)
    signs.of_node(NodeGauges(node_id=NODE, memory_available_bytes=1, disk_free_bytes=1, cpu_load=0))
    clock.now += 30
    began = BEGAN + 25
    assert signs.last_beats(state(), began, WALL + clock.now) == {NODE: WALL + began}
    assert signs.last_beats(state(), BEGAN - 9, WALL + clock.now) == {NODE: WALL + BEGAN}
