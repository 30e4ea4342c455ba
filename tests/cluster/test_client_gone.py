"""A client that goes away takes its generation along: the engine stops, and the slot is free."""

import pytest

from exo.domain.limits import SLOTS
from exo.domain.messages.events import GenerationFinished
from tests.cluster.chats import Chat, script
from tests.cluster.history import finish_of, logged_of, state
from tests.stack import Stack, wait_until

STOPPED_WITHIN = 2.0


def wait_cancelled(stack: Stack, task_id: str) -> None:
    """Return when the log has the end of a generation, which is a cancellation."""
    wait_until(lambda: finish_of(stack, task_id) is not None, "the generation's end", STOPPED_WITHIN)
    end = finish_of(stack, task_id)
    assert end is not None and end.finish_reason == "cancelled"


def only_task(stack: Stack) -> str:
    """The id of the one generation that there is."""
    wait_until(lambda: len(running(stack)) == 1, "the generation")
    return running(stack)[0]


def running(stack: Stack) -> list[str]:
    """Generations that an instance has."""
    return [task_id for task_id, one in state(stack)["generations"].items() if one["instance_id"]]


def waiting(stack: Stack) -> list[str]:
    """Generations in the queue."""
    return [task_id for task_id, one in state(stack)["generations"].items() if not one["instance_id"]]


@pytest.mark.parametrize("stream", [True, False])
def test_before_the_first_token(shared_stack: Stack, stream: bool) -> None:
    chat = Chat(shared_stack, script(5, prefill=60), stream=stream)
    task_id = only_task(shared_stack)
    chat.hang_up()
    wait_cancelled(shared_stack, task_id)


def test_in_the_middle_of_the_stream(shared_stack: Stack) -> None:
    chat = Chat(shared_stack, script(400, 0.1)).wait_text(5)
    chat.hang_up()
    assert chat.task_id is not None
    wait_cancelled(shared_stack, chat.task_id)
    end = finish_of(shared_stack, chat.task_id)
    assert end is not None and 5 <= end.usage.completion_tokens < 50


def test_in_the_middle_of_an_answer_in_one_piece(shared_stack: Stack) -> None:
    chat = Chat(shared_stack, script(400, 0.1), stream=False)
    task_id = only_task(shared_stack)
    chat.hang_up()
    wait_cancelled(shared_stack, task_id)


def test_while_queued_and_then_those_that_ran_leave_their_slots_to_the_next(shared_stack: Stack) -> None:
    before = len(logged_of(shared_stack, GenerationFinished))
    busy = [Chat(shared_stack, script(400, 0.1)) for _ in range(SLOTS)]
    wait_until(lambda: len(running(shared_stack)) == SLOTS, "as many that run as can")
    queued = Chat(shared_stack, "nobody will read this")
    wait_until(lambda: len(waiting(shared_stack)) == 1, "one that waits")
    (task_id,) = waiting(shared_stack)
    queued.hang_up()
    wait_cancelled(shared_stack, task_id)
    patient = Chat(shared_stack, "my turn now")
    busy[3].hang_up()
    assert patient.wait(STOPPED_WITHIN).text == "my turn now"
    for chat in busy:
        if chat is not busy[3]:
            chat.hang_up()
    wait_until(lambda: not state(shared_stack)["generations"], "free slots", STOPPED_WITHIN)
    assert len(logged_of(shared_stack, GenerationFinished)) == before + SLOTS + 2
