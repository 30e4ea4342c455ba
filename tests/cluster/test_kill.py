"""kill -9 of each process in turn while requests stream: nothing hangs, nothing is lost, nothing is done twice."""

import os
import signal

import pytest

from exo.domain.limits import SLOTS
from exo.domain.messages.events import RunnerReady
from tests.cluster.chats import Chat, script, wait_all, words
from tests.cluster.history import assert_sound, logged_of, state
from tests.stack import Stack, alive, wait_until

COUNT, PACE = 50, 0.04
TEXT = "".join(words(COUNT))


def streaming(stack: Stack) -> tuple[list[Chat], list[Chat]]:
    """As many requests as run side by side, in the middle of their answers, and four that wait for a slot."""
    running = [Chat(stack, script(COUNT, PACE)) for _ in range(SLOTS)]
    for chat in running:
        chat.wait_text(3)
    waiting = [Chat(stack, script(COUNT, PACE / 4)) for _ in range(4)]
    wait_until(lambda: len(state(stack)["generations"]) == SLOTS + 4, "the queue")
    return running, waiting


@pytest.mark.parametrize("process", ["master", "nats"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_answers_stay_whole_when_what_only_coordinates_ends(
    shared_stack: Stack, process: str, number: signal.Signals
) -> None:
    running, waiting = streaming(shared_stack)
    shared_stack.end(process, number)
    shared_stack.start([process])
    wait_all([*running, *waiting])
    assert [chat for chat in [*running, *waiting] if (chat.outcome, chat.text) != ("complete", TEXT)] == []
    assert_sound(shared_stack)


def test_a_killed_runner_ends_what_it_ran_and_the_queue_goes_on(shared_stack: Stack) -> None:
    running, waiting = streaming(shared_stack)
    (runner,) = shared_stack.runner_pids()
    os.kill(runner, signal.SIGKILL)
    wait_all(running, 5)
    assert {(chat.outcome, chat.code) for chat in running} == {("error", "runner_failed")}
    assert all(TEXT.startswith(chat.text) and chat.text for chat in running)
    wait_all(waiting)
    assert {(chat.outcome, chat.text) for chat in waiting} == {("complete", TEXT)}
    assert_sound(shared_stack)


def test_a_killed_worker_takes_its_runner_along_and_the_queue_goes_on(shared_stack: Stack) -> None:
    running, waiting = streaming(shared_stack)
    runners = shared_stack.runner_pids()
    shared_stack.kill("worker")
    wait_until(lambda: not any(map(alive, runners)), "the orphans' end", 5)
    shared_stack.start(["worker"])
    wait_all(running)
    assert {(chat.outcome, chat.code) for chat in running} == {("error", "runner_failed")}
    assert all(TEXT.startswith(chat.text) and chat.text for chat in running)
    wait_all(waiting)
    assert {(chat.outcome, chat.text) for chat in waiting} == {("complete", TEXT)}
    assert_sound(shared_stack)


def test_a_killed_api_breaks_its_connections_and_nothing_else(shared_stack: Stack) -> None:
    running, waiting = streaming(shared_stack)
    ready = len(logged_of(shared_stack, RunnerReady))
    shared_stack.kill("api")
    wait_all([*running, *waiting], 5)
    assert {chat.outcome for chat in [*running, *waiting]} == {"broken"}
    shared_stack.start(["api"])
    shared_stack.wait_ready()
    assert_sound(shared_stack)
    assert len(logged_of(shared_stack, RunnerReady)) == ready
