"""A real model on MLX, twice, on two nodes: one instance prefills, the other answers as it would by itself."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exo.models.catalog import EMBEDDED
from tests.cluster.linked_pairs import LONG_PROMPT, Linked, placed_on
from tests.conftest import needs_mlx
from tests.stack import Stack, two_nodes, wait_until

pytestmark = [pytest.mark.slow, needs_mlx]


@pytest.fixture(scope="module")
def workers(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Stack]]:
    """A node, and beside it a second worker that reaches it."""
    folder = tmp_path_factory.mktemp("two")
    settings = {"engine": "mlx", "default_model": "none", "model_folders": str(embedded_model.parent), "offline": "1"}
    with two_nodes(folder, **settings) as workers:
        yield workers


@pytest.fixture(scope="module")
def linked(workers: tuple[Stack, Stack]) -> Linked:
    """An instance on each node; the one on the second prefills."""
    first, second = workers
    nodes = [(stack.home / "node_id").read_text().strip() for stack in (second, first)]
    prefill_id, decode_id = (placed_on(first, EMBEDDED, "--node", node_id) for node_id in nodes)
    return Linked(first, EMBEDDED, prefill_id, decode_id)


def test_the_other_node_prefills_and_the_answer_is_the_same(linked: Linked) -> None:
    prompt = LONG_PROMPT.format(name="same")
    with linked.link():
        elsewhere = linked.ask(prompt)
    assert elsewhere.instance_id == linked.decode_id
    assert elsewhere.attempt is not None
    assert elsewhere.attempt.error == ""
    assert elsewhere.attempt.tokens == elsewhere.prompt_tokens - 1
    assert elsewhere.text == linked.own(prompt).text


def test_what_is_in_the_prefix_cache_is_not_asked_for(linked: Linked) -> None:
    prompt = LONG_PROMPT.format(name="cached")
    with linked.link():
        first, again = linked.ask(prompt), linked.ask(prompt)
    assert first.attempt is not None
    assert again.attempt is None
    assert again.text == first.text


def test_a_prefill_runner_that_is_killed_costs_no_answer(linked: Linked, workers: tuple[Stack, Stack]) -> None:
    with linked.link():
        (pid,) = workers[1].runner_pids()
        os.kill(pid, signal.SIGKILL)
        killed = linked.ask(LONG_PROMPT.format(name="killed"))
        assert killed.text
        assert killed.attempt is None or killed.attempt.error
        url = f"{linked.stack.url}/instance/{linked.prefill_id}"
        wait_until(lambda: pid not in workers[1].runner_pids() and httpx.get(url).json()["ready"], "a new runner", 60)
        again = linked.ask(LONG_PROMPT.format(name="again"))
    assert again.attempt is not None
    assert again.attempt.error == ""
