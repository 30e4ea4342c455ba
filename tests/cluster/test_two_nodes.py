"""Two workers on one machine, with a home each, are two nodes: they find each other, and a model goes over both."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.chats import Chat, script, words
from tests.stack import EXO, Stack, reaching, two_nodes, wait_until

MODEL = "exo/scripted"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Stack]]:
    """A node, and beside it a second worker."""
    folder: Path = tmp_path_factory.mktemp("two")
    with two_nodes(folder, default_model="none") as workers:
        yield workers


@pytest.fixture
def stack(workers: tuple[Stack, Stack]) -> Stack:
    """The node with the API."""
    return workers[0]


def nodes(stack: Stack) -> dict[str, Any]:
    return httpx.get(f"{stack.url}/state/nodes").json()


def test_each_reaches_the_other_over_the_machine_itself(stack: Stack) -> None:
    known = nodes(stack)
    for node_id, node in known.items():
        assert {link["to"] for link in node["links"]} == known.keys() - {node_id}
        assert {link["kind"] for link in node["links"]} == {"loopback"}
        assert "127.0.0.1" in {link["address"] for link in node["links"]}


def test_an_idle_cluster_measures_and_logs_nothing(stack: Stack) -> None:
    links = {node_id: node["links"] for node_id, node in nodes(stack).items()}
    with httpx.stream("GET", f"{stack.url}/events", timeout=30) as response:
        # The first comment answers the request, the second comes after ten seconds without an event.
        for _, line in zip(range(4), response.iter_lines(), strict=False):
            assert "NodeLinksChanged" not in line
    assert {node_id: node["links"] for node_id, node in nodes(stack).items()} == links


def test_previews_offer_both_nodes(stack: Stack) -> None:
    answer = httpx.get(f"{stack.url}/instance/previews", params={"model": MODEL}).json()
    offered = {(one["sharding"], one["backend"], one["nodes"]) for one in answer["previews"] if one["offered"]}
    assert {("pipeline", "ring", 1), ("pipeline", "ring", 2)} <= offered
    refused = [one for one in answer["previews"] if not one["offered"]]
    assert refused
    assert all(one["reason"] and one["code"] for one in refused)


def test_more_nodes_than_there_are_is_a_refusal_with_figures(stack: Stack) -> None:
    body = {"model": MODEL, "min_nodes": 3}
    answer = httpx.post(f"{stack.url}/place_instance", params={"wait": 10}, json=body, timeout=20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_enough_nodes")
    assert "3 nodes are asked for, and 2 have the engine" in answer.json()["error"]["message"]


def test_a_node_that_is_not_there_is_named(stack: Stack) -> None:
    answer = httpx.post(f"{stack.url}/place_instance", json={"model": MODEL, "node_ids": ["nobody"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "node_not_found")
    assert "'nobody' is no node" in answer.json()["error"]["message"]


def test_a_model_is_placed_on_the_node_that_is_named(stack: Stack) -> None:
    for node_id in nodes(stack):
        placed = stack.cli("place", MODEL, "--node", node_id[:8], "--slots", "2")
        assert placed.returncode == 0, placed.stderr
        instance_id = placed.stdout.partition(":")[0]
        shown = httpx.get(f"{stack.url}/instance/{instance_id}").json()["instance"]
        assert [shard["node_id"] for shard in shown["shards"]] == [node_id]
        httpx.delete(f"{stack.url}/instance/{instance_id}", params={"wait": 10}, timeout=20)


def test_the_command_line_shows_where_a_model_could_go(stack: Stack) -> None:
    shown = stack.cli("place", MODEL, "--preview")
    assert shown.returncode == 0, shown.stderr
    assert "pipeline" in shown.stdout


def test_previews_are_those_of_what_is_asked_for(stack: Stack) -> None:
    asked = {"model": MODEL, "min_nodes": 2, "sharding": "tensor"}
    answer = httpx.get(f"{stack.url}/instance/previews", params=asked).json()
    ways = {(one["sharding"], one["backend"], one["nodes"]) for one in answer["previews"]}
    assert ways == {("tensor", "ring", 2), ("tensor", "jaccl", 2)}
    one_node = {"model": MODEL, "node_ids": sorted(nodes(stack))[1], "backend": "ring"}
    first = httpx.get(f"{stack.url}/instance/previews", params=one_node).json()["previews"][0]
    assert [shard["node_id"] for shard in first["shards"]] == [one_node["node_ids"]]
    shown = stack.cli("place", MODEL, "--preview", "--min-nodes", "2", "--sharding", "tensor")
    assert "tensor" in shown.stdout
    assert "│ pipeline " not in shown.stdout


def test_placing_waits_until_the_model_is_ready_and_says_so(stack: Stack) -> None:
    placed = stack.cli("place", MODEL, "--slots", "1")
    assert "\nready after" in placed.stdout
    instance_id = placed.stdout.partition(":")[0]
    assert httpx.get(f"{stack.url}/instance/{instance_id}").json()["ready"]
    assert stack.cli("unload", instance_id[:8]).returncode == 0


def test_placing_that_is_not_to_wait_says_where_and_no_more(stack: Stack) -> None:
    placed = stack.cli("place", MODEL, "--slots", "1", "--no-wait")
    assert len(placed.stdout.splitlines()) == 1
    assert stack.cli("unload", placed.stdout.partition(":")[0]).returncode == 0


@pytest.fixture
def both(workers: tuple[Stack, Stack]) -> Iterator[str]:
    """An instance over both nodes, ready."""
    stack, second = workers
    wait_until(lambda: len(reaching(stack)) == 2, "two nodes that reach each other")
    placed = stack.cli("place", MODEL, "--min-nodes", "2")
    assert placed.returncode == 0, placed.stderr
    wait_until(stack.is_ready, "an instance over both nodes")
    instance_id = placed.stdout.partition(":")[0]
    yield instance_id
    httpx.delete(f"{stack.url}/instance/{instance_id}", params={"wait": 10}, timeout=20)
    wait_until(lambda: not stack.runner_pids() and not second.runner_pids(), "the runners' end")


def runners(stack: Stack, instance_id: str) -> list[dict[str, Any]]:
    return httpx.get(f"{stack.url}/instance/{instance_id}").json()["runners"]


def test_a_model_over_both_nodes_answers(stack: Stack, both: str) -> None:
    shards = httpx.get(f"{stack.url}/instance/{both}").json()["instance"]["shards"]
    assert [(shard["rank"], shard["start_layer"], shard["end_layer"]) for shard in shards] == [(0, 2, 4), (1, 0, 2)]
    assert [shard["host"] for shard in shards] == ["127.0.0.1", "127.0.0.1"]
    chat = Chat(stack, script(20)).wait()
    assert (chat.outcome, chat.text) == ("complete", "".join(words(20)))


def test_a_killed_rank_ends_what_ran_and_all_ranks_start_again(workers: tuple[Stack, Stack], both: str) -> None:
    stack, second = workers
    before = [runner["process"] for runner in runners(stack, both)]
    chat = Chat(stack, script(500, 0.05)).wait_text(3)
    victim = next(one for one in workers if node_of(one) == runners(stack, both)[1]["node_id"])
    os.kill(victim.runner_pids()[0], signal.SIGKILL)
    chat.wait(5)
    assert (chat.outcome, chat.code) == ("error", "runner_failed")
    wait_until(lambda: all(one["status"]["type"] == "ready" for one in runners(stack, both)), "both ranks again")
    after = [runner["process"] for runner in runners(stack, both)]
    assert not set(before) & set(after)
    assert len(stack.runner_pids()) == len(second.runner_pids()) == 1
    assert Chat(stack, script(20)).wait().text == "".join(words(20))


def test_a_worker_that_is_started_again_breaks_the_group_and_it_comes_back(
    workers: tuple[Stack, Stack], both: str
) -> None:
    stack, second = workers
    before = {runner["process"] for runner in runners(stack, both)}
    chat = Chat(stack, script(500, 0.05)).wait_text(3)
    second.kill("worker")
    second.start(["worker"])
    chat.wait(10)
    assert chat.outcome == "error"
    wait_until(
        lambda: all(one["status"]["type"] == "ready" and one["process"] not in before for one in runners(stack, both)),
        "both ranks again",
    )
    assert Chat(stack, script(20)).wait().text == "".join(words(20))


def test_a_lost_node_takes_the_instance_and_who_asks_next_gets_another(workers: tuple[Stack, Stack], both: str) -> None:
    stack, second = workers
    second.kill("worker")
    wait_until(lambda: httpx.get(f"{stack.url}/instance/{both}").status_code == 404, "the end of the instance", 20)
    chat = Chat(stack, script(20)).wait()
    assert chat.text == "".join(words(20))
    assert [len(one["shards"]) for one in httpx.get(f"{stack.url}/state/instances").json().values()] == [1]
    for instance_id in httpx.get(f"{stack.url}/state/instances").json():
        httpx.delete(f"{stack.url}/instance/{instance_id}", params={"wait": 10}, timeout=20)
    second.start(["worker"])


def node_of(stack: Stack) -> str:
    return (stack.home / "node_id").read_text().strip()


def test_ctrl_c_leaves_a_placed_model_loading_and_says_so(workers: tuple[Stack, Stack]) -> None:
    """The last one: links to a worker that hangs are lost, and come back one by one."""
    stack, _ = workers
    node_id = node_of(stack)
    stack.signal("worker", signal.SIGSTOP)  # so that nothing loads meanwhile
    try:
        command = [sys.executable, "-c", EXO, "place", MODEL, "--node", node_id]
        with subprocess.Popen(command, env=stack.environment, stdout=subprocess.PIPE, text=True) as placing:
            assert placing.stdout is not None
            placed, waiting = placing.stdout.readline(), placing.stdout.readline()
            assert waiting.endswith(": waiting\n")
            placing.send_signal(signal.SIGINT)
            assert placing.stdout.read() == "it goes on loading: `exo status` shows how far it is\n"
        assert placing.returncode == 128 + signal.SIGINT
        assert placed.partition(":")[0] in httpx.get(f"{stack.url}/state/instances").json()
    finally:
        stack.signal("worker", signal.SIGCONT)
    assert stack.cli("unload", placed.partition(":")[0]).returncode == 0
