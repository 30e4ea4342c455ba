"""Prefill on one instance, decode on another, with runners that are processes and a state that says what it is of."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from exo.domain.messages.events import GenerationFinished
from exo.domain.prefill import PrefillAttempt
from tests.cluster.chats import Chat, script, words
from tests.cluster.history import assert_sound, finish_of
from tests.stack import Stack, wait_until

LONG = 60
"""Words of an answer whose script, the prompt, has more than 256 tokens: one for each of its bytes."""
PREFILL = 2.0
"""Seconds that a prompt takes where something is to happen meanwhile."""


@dataclass
class Pair:
    """Two linked instances of one node."""

    stack: Stack
    prefill_id: str
    decode_id: str
    prefill_pid: int

    def ended(self, chat: Chat) -> GenerationFinished:
        """How an answer ended, by the log."""
        task_id = chat.wait().task_id
        assert task_id is not None
        wait_until(lambda: finish_of(self.stack, task_id) is not None, "the end in the log", 10)
        found = finish_of(self.stack, task_id)
        assert found is not None
        return found

    def attempt(self, chat: Chat) -> PrefillAttempt:
        """What became of asking for its prompt."""
        found = self.ended(chat).prefill
        assert found is not None
        assert found.instance_id == self.prefill_id
        return found

    def unlink(self) -> None:
        """Ends the link, and waits until the master knows."""
        url = f"{self.stack.url}/instance/{self.decode_id}/prefill"
        httpx.delete(url, params={"wait": 10}, timeout=20).raise_for_status()


def placed(stack: Stack) -> tuple[str, int]:
    """One more instance of one slot, and its runner's process."""
    before = set(stack.runner_pids())
    done = stack.cli("place", "scripted", "--slots", "1")
    assert done.returncode == 0, done.stderr
    (pid,) = set(stack.runner_pids()) - before
    return done.stdout.partition(":")[0], pid


@pytest.fixture
def pair(stack: Stack) -> Iterator[Pair]:
    """The default model's instance gives way to two that are linked by the command line."""
    (first,) = stack.state()["instances"]
    assert stack.cli("unload", first).returncode == 0
    wait_until(lambda: stack.runner_pids() == [], "the runner's end", 10)
    prefill_id, pid = placed(stack)
    decode_id, _ = placed(stack)
    linked = stack.cli("link", prefill_id[:8], decode_id[:8])
    assert linked.stdout == f"{prefill_id} prefills for {decode_id}\n", linked.stderr
    yield Pair(stack, prefill_id, decode_id, pid)
    assert_sound(stack)


def dispatched(pair: Pair) -> bool:
    """Whether a generation is with the decode instance."""
    return any(one["instance_id"] == pair.decode_id for one in pair.stack.state()["generations"].values())


def test_a_long_prompt_is_computed_elsewhere_and_a_short_one_is_not(pair: Pair) -> None:
    long = Chat(pair.stack, script(LONG))
    assert long.wait().text == "".join(words(LONG))
    attempt, end = pair.attempt(long), pair.ended(long)
    assert attempt.error == ""
    assert attempt.tokens == end.usage.prompt_tokens - 1 == end.usage.cached_tokens
    short = Chat(pair.stack, script(3))
    assert short.wait().text == "".join(words(3))
    assert pair.ended(short).prefill is None
    why = pair.stack.cli("log", "why", str(long.task_id)).stdout
    assert f"instance {pair.prefill_id[:8]} prefilled {attempt.tokens} tokens of it" in why
    assert f"instance {pair.prefill_id[:8]} prefills for instance {pair.decode_id[:8]} from now on" in why
    assert f"by {pair.prefill_id[:8]}" in pair.stack.cli("status").stdout
    trace = httpx.get(f"{pair.stack.url}/v1/traces/{long.task_id}").json()
    assert trace["instance_id"] == pair.decode_id
    assert trace["prefill"]["tokens"] == attempt.tokens
    spans = {span["name"]: span for span in trace["spans"]}
    inner, outer = spans["prefill_elsewhere"], spans["dispatch"]
    assert inner["parent"] == "dispatch"
    assert outer["start"] <= inner["start"]
    assert inner["start"] + inner["seconds"] <= outer["start"] + outer["seconds"] + 1e-6
    shown = httpx.get(f"{pair.stack.url}/instance/{pair.decode_id}").json()
    assert shown["prefill_id"] == pair.prefill_id


def test_a_prefill_runner_that_is_killed_in_the_middle_costs_no_answer(pair: Pair) -> None:
    chat = Chat(pair.stack, script(LONG, prefill=PREFILL))
    wait_until(lambda: dispatched(pair), "the request with its runner", 10)
    os.kill(pair.prefill_pid, signal.SIGKILL)
    assert chat.wait().text == "".join(words(LONG))
    attempt = pair.attempt(chat)
    assert attempt.tokens == 0
    assert attempt.error
    assert f"did not prefill {chat.task_id}, so this one does" in pair.stack.output("worker")
    wait_until(lambda: pair.prefill_pid not in pair.stack.runner_pids() and ready(pair), "a new runner", 20)
    again = Chat(pair.stack, script(LONG))
    assert pair.attempt(again).error == ""


def ready(pair: Pair) -> bool:
    shown = httpx.get(f"{pair.stack.url}/instance/{pair.prefill_id}").json()
    return bool(shown["ready"])


def test_whoever_is_busy_is_not_waited_for(pair: Pair) -> None:
    """It computes for two decode instances, one prompt at a time."""
    third, _ = placed(pair.stack)
    body = {"prefill_id": pair.prefill_id}
    httpx.post(f"{pair.stack.url}/instance/{third}/prefill", params={"wait": 10}, json=body).raise_for_status()
    chats = [Chat(pair.stack, script(LONG, prefill=PREFILL)) for _ in range(2)]
    attempts = [pair.attempt(chat) for chat in chats]
    assert sorted(bool(attempt.error) for attempt in attempts) == [False, True]
    assert any("computes 1 prompts for others already" in attempt.error for attempt in attempts)
    assert {chat.text for chat in chats} == {"".join(words(LONG))}


def test_a_cancelled_request_takes_its_prefill_with_it(pair: Pair) -> None:
    chat = Chat(pair.stack, script(LONG, prefill=60.0))
    wait_until(lambda: dispatched(pair), "the request with its runner", 10)
    (task_id,) = pair.stack.state()["generations"]
    httpx.post(f"{pair.stack.url}/v1/cancel/{task_id}", params={"wait": 10}, timeout=20).raise_for_status()
    assert (chat.wait(10).outcome, chat.code) == ("error", "cancelled")

    def prefills() -> bool:
        """It could not where its one place for others were still taken."""
        return pair.attempt(Chat(pair.stack, script(LONG))).error == ""

    wait_until(prefills, "the prefill's end", 10)


def test_after_the_link_each_instance_answers_by_itself(pair: Pair) -> None:
    pair.unlink()
    assert pair.stack.state()["prefill_links"] == {}
    chats = [Chat(pair.stack, script(LONG, 0.02)) for _ in range(2)]
    assert [pair.ended(chat).prefill for chat in chats] == [None, None]
    again = pair.stack.cli("unlink", pair.decode_id[:8])
    assert again.returncode == 1
    assert "no other instance prefills for" in again.stderr


def test_a_prefill_instance_that_is_unloaded_leaves_the_other_to_itself(pair: Pair) -> None:
    chat = Chat(pair.stack, script(LONG, prefill=PREFILL))
    wait_until(lambda: dispatched(pair), "the request with its runner", 10)
    assert pair.stack.cli("unload", pair.prefill_id).returncode == 0
    assert chat.wait().text == "".join(words(LONG))
    assert pair.attempt(chat).error
    assert pair.stack.state()["prefill_links"] == {}
    assert pair.ended(Chat(pair.stack, script(LONG))).prefill is None
