"""A real model over two nodes: it answers as one process does, and no lost rank leaves anything hanging."""

import json
import os
import random
import re
import signal
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from exo.domain.constraint import Constraint, JsonSchema
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.models.catalog import EMBEDDED
from tests.cluster.chats import Chat, wait_all
from tests.conftest import needs_mlx
from tests.stack import Stack, alive, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_mlx]
QUESTION = "What is the capital of France?"
STORY = "Tell me a long story about the sea."
PROFILE = "Describe a person as JSON."
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "colour": {"enum": ["red", "green", "blue"]}},
    "required": ["name", "colour"],
    "additionalProperties": False,
}
CANCELLED_AT_RANDOM = 24
"""Requests, about half of which are cancelled."""
READY = 240.0
"""Seconds for two runners to start, to meet, to load and to warm up."""


class Pair:
    """Two nodes, with one model over both."""

    def __init__(self, folder: Path, model: Path) -> None:
        settings = {"engine": "mlx", "model_folders": str(model.parent), "offline": "1", "default_model": "none"}
        self.first = Stack(folder / "first", **settings)
        self.second = Stack(folder / "second", nats_url=self.first.nats_url, **settings)

    def start(self) -> "Pair":
        self.first.start()
        self.second.start(["worker"])
        self.place()
        return self

    def place(self) -> None:
        """An instance over both, once they reach each other."""
        wait_until(lambda: self.first.is_up() and self._linked(), "two nodes that reach each other", 60)
        body = {"model": EMBEDDED, "min_nodes": 2, "slots": 8, "context": 2048}
        placed = httpx.post(f"{self.first.url}/place_instance", params={"wait": 20}, json=body, timeout=30)
        assert placed.status_code < 300, placed.text
        self.wait_ready()

    def stop(self) -> None:
        self.second.stop()
        self.first.stop()

    def nodes(self) -> dict[str, Any]:
        """All nodes, by id."""
        return httpx.get(f"{self.first.url}/state/nodes").json()

    def instances(self) -> dict[str, Any]:
        """All instances, by id."""
        return httpx.get(f"{self.first.url}/state/instances").json()

    def instance(self) -> dict[str, Any]:
        """The one instance, as the API shows it."""
        (instance_id,) = self.instances()
        return httpx.get(f"{self.first.url}/instance/{instance_id}").json()

    def wait_ready(self) -> None:
        wait_until(lambda: bool(self.instance()["ready"]), "an instance of two ranks", READY)

    def pid(self, rank: int) -> int:
        """Of the runner process of a rank."""
        (pid,) = self._stack(rank).runner_pids()
        return pid

    def worker_pid(self, rank: int) -> int:
        """Of the worker process that has the runner of a rank."""
        return self._stack(rank).processes["worker"].pid

    def machine(self, rank: int) -> str:
        """The name of a rank's machine: both nodes are on one, so that its id belongs to it."""
        node_id = self.instance()["instance"]["shards"][rank]["node_id"]
        return f"{socket.gethostname()} ({node_id[:8]})"

    @contextmanager
    def without_worker(self, rank: int) -> Generator[None]:
        """Has the worker of a rank hang, then die; another is started afterwards."""
        stack = self._stack(rank)
        with hung(self.worker_pid(rank)):
            yield
            stack.kill("worker")
        stack.start(["worker"])

    def ask(self, question: str = QUESTION, temperature: float = 0, **more: object) -> Chat:
        """Ask, without randomness unless told otherwise."""
        return Chat(self.first, question, model=EMBEDDED, temperature=temperature, **more)

    def _stack(self, rank: int) -> Stack:
        node_id = self.instance()["instance"]["shards"][rank]["node_id"]
        (stack,) = [stack for stack in (self.first, self.second) if node_id in (stack.home / "node_id").read_text()]
        return stack

    def _linked(self) -> bool:
        nodes = self.nodes()
        return len(nodes) == 2 and all(node["links"] for node in nodes.values())


@pytest.fixture(scope="module")
def pair(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"), embedded_model)
    try:
        yield pair.start()
    finally:
        pair.stop()


def assert_well(pair: Pair) -> None:
    """The next answer is right."""
    assert "Paris" in pair.ask(max_tokens=20).wait(120).text


@contextmanager
def hung(*pids: int) -> Generator[None]:
    """Has processes hang meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGCONT)


def assert_they_fail_within_the_deadline(pair: Pair, running: list[Chat]) -> None:
    """Five seconds after rank 1 hangs, with its name."""
    wait_all(running, 5.5)
    assert [(chat.outcome, chat.code) for chat in running] == [("error", "runner_failed")] * len(running)
    assert running[0].error is not None
    assert f"the runner failed: rank 1 on {pair.machine(1)}: no sign of life" in running[0].error["message"]


def test_it_answers(pair: Pair) -> None:
    answer = pair.ask(max_tokens=20).wait(120)
    assert answer.outcome == "complete"
    assert "Paris" in answer.text


def test_it_answers_as_one_process_does(pair: Pair, embedded_model: Path) -> None:
    """Greedy, four side by side, begun one after the other."""
    questions = [QUESTION, "Name three colours.", "What is two plus two?", STORY]
    chats = [pair.ask(question, max_tokens=24).wait_text(1, 60) for question in questions]
    assert [chat.wait(120).text for chat in chats] == [alone(embedded_model, question, 24) for question in questions]


def test_chance_is_the_same_on_all_ranks(pair: Pair) -> None:
    """Or they would feed different tokens into their layers, and notice."""
    chats = [pair.ask(STORY, max_tokens=24, temperature=1.5) for _ in range(4)]
    assert [chat.wait(120).outcome for chat in chats] == ["complete"] * 4


def test_an_answer_is_held_to_a_schema_as_in_one_process(pair: Pair, embedded_model: Path) -> None:
    """Beside a free one: every rank must choose among the same tokens."""
    schema = {"name": "person", "schema": PERSON, "strict": True}
    free = pair.ask(STORY, max_tokens=40)
    held = pair.ask(PROFILE, max_tokens=60, response_format={"type": "json_schema", "json_schema": schema}).wait(120)
    assert (held.outcome, held.finish_reason) == ("complete", "stop")
    jsonschema.validate(json.loads(held.text), PERSON)
    assert held.text == alone(embedded_model, PROFILE, 60, JsonSchema(text=json.dumps(PERSON), strict=True))
    assert free.wait(120).outcome == "complete"


def test_a_stop_sequence_ends_a_request_on_all_ranks(pair: Pair) -> None:
    other = pair.ask(STORY, max_tokens=40)
    stopped = pair.ask(max_tokens=20, stop=["Paris"]).wait(120)
    assert (stopped.finish_reason, "Paris" in stopped.text) == ("stop", False)
    assert other.wait(120).outcome == "complete"
    assert_well(pair)


def test_who_hangs_up_has_cancelled_on_all_ranks(pair: Pair) -> None:
    others = [pair.ask(STORY, max_tokens=30) for _ in range(2)]
    for _ in range(3):
        pair.ask(STORY, max_tokens=1000).wait_text(2, 60).hang_up()
    wait_until(lambda: pair.instance()["running"] <= len(others), "the slots of who hung up", 60)
    assert [other.wait(120).outcome for other in others] == ["complete"] * 2
    assert_well(pair)


def test_many_requests_of_which_some_are_cancelled_at_random_leave_nothing_behind(pair: Pair) -> None:
    chance = random.Random(4)
    chats: list[Chat] = []
    for number in range(CANCELLED_AT_RANDOM):
        cancelled = chance.random() < 0.5
        chats.append(pair.ask(f"{number}. {STORY}", max_tokens=1000 if cancelled else chance.randint(1, 12)))
        if cancelled:
            chats[-1].wait_text(chance.randint(1, 4), 60).hang_up()
    assert all(chat.wait(120).outcome in ("complete", "broken") for chat in chats)
    wait_until(lambda: pair.instance()["running"] == 0, "all slots", 60)
    assert_well(pair)


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_rank_ends_requests_at_once_and_all_start_again(pair: Pair, rank: int) -> None:
    running = [pair.ask(STORY, max_tokens=1000).wait_text(2, 60) for _ in range(3)]
    survivor = pair.pid(1 - rank)
    os.kill(pair.pid(rank), signal.SIGKILL)
    assert [(chat.wait(5).outcome, chat.code) for chat in running] == [("error", "runner_failed")] * 3
    pair.wait_ready()
    assert pair.pid(1 - rank) != survivor
    assert_well(pair)


def test_a_machine_that_is_gone_at_once_is_named_by_the_rank_that_lost_it(pair: Pair) -> None:
    """Its runner and its worker die together: nobody there tells why. What rank 0 noticed first is chance: MLX may miss
    that a connection was closed."""
    running = pair.ask(STORY, max_tokens=1000).wait_text(2, 60)
    name, runner = pair.machine(1), pair.pid(1)
    with pair.without_worker(1):
        os.kill(runner, signal.SIGKILL)
        assert running.wait(5).code == "runner_failed"
        noticed = "the connection to it was lost|no sign of life"
        assert re.search(f"rank 1 on {re.escape(name)}: ({noticed})", str(running.error))
    pair.wait_ready()
    assert_well(pair)


def test_a_stopped_rank_ends_requests_within_five_seconds_with_its_name(pair: Pair) -> None:
    """SIGSTOP of a runner, as when a machine hangs: its connections stay, and nothing comes."""
    running = [pair.ask(STORY, max_tokens=1000).wait_text(2, 60) for _ in range(3)]
    stopped = pair.pid(1)
    with hung(stopped):
        assert_they_fail_within_the_deadline(pair, running)
        pair.wait_ready()
        assert not alive(stopped)
    assert_well(pair)


def test_a_machine_that_hangs_for_longer_than_the_others_wait_begins_anew_with_them(pair: Pair) -> None:
    """SIGSTOP of a runner and of its worker, which else would end it: the old process lives on when they wake up."""
    instance_id = pair.instance()["instance"]["instance_id"]
    running = [pair.ask(STORY, max_tokens=1000).wait_text(2, 60) for _ in range(3)]
    old = pair.pid(1)
    with hung(old, pair.worker_pid(1)):
        assert_they_fail_within_the_deadline(pair, running)
    wait_until(lambda: not alive(old), "the end of the process that woke up", 20)
    pair.wait_ready()
    assert pair.instance()["instance"]["instance_id"] == instance_id
    assert_well(pair)


def test_a_machine_that_wakes_up_when_it_was_given_up_harms_nobody(pair: Pair) -> None:
    """Its instance is gone by then, and nobody but its own worker could tell the old process so."""
    running = [pair.ask(STORY, max_tokens=1000).wait_text(2, 60) for _ in range(3)]
    old = pair.pid(1)
    with hung(old, pair.worker_pid(1)):
        assert_they_fail_within_the_deadline(pair, running)
        wait_until(lambda: len(pair.nodes()) == 1, "a node that is given up")
        assert pair.instances() == {}
        assert alive(old)
    wait_until(lambda: not alive(old), "the end of the process that woke up", 20)
    assert pair.instances() == {}
    pair.place()
    assert_well(pair)


def alone(folder: Path, question: str, max_tokens: int, constraint: Constraint | None = None) -> str:
    """What mlx-lm's own `generate_step` says to a question, as text, without the end token."""
    from exo.runner.tokenizer import HuggingFaceTokenizer
    from tests.tiny_models import greedy_tokens

    tokenizer = HuggingFaceTokenizer(folder)
    prompt = tokenizer.encode_chat([{"role": "user", "content": question}])
    request = GenerationRequest(messages=(), params=SamplingParams(constraint=constraint))
    detokenizer = tokenizer.detokenizer()
    tokens = greedy_tokens(folder, prompt, max_tokens, tokenizer.guide(request, prompt))
    return "".join(detokenizer.push(token) for token in tokens if token not in tokenizer.end_tokens)
