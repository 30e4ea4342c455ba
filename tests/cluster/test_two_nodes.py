"""Two workers on one machine, with a home each, are two nodes: they find each other, and a model goes over both."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node, and beside it a second worker."""
    folder: Path = tmp_path_factory.mktemp("two")
    first = Stack(folder / "first", default_model="none")
    second = Stack(folder / "second", nats_url=first.nats_url)
    try:
        first.start()
        second.start(["worker"])
        wait_until(lambda: first.is_up() and len(linked(first)) == 2, "two nodes that reach each other", 60)
        yield first
    finally:
        second.stop()
        first.stop()


def nodes(stack: Stack) -> dict[str, Any]:
    return httpx.get(f"{stack.url}/state/nodes").json()


def linked(stack: Stack) -> list[str]:
    """The nodes that reach another one."""
    return [node_id for node_id, node in nodes(stack).items() if node["links"]]


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
    assert {("pipeline", "ring", 1)} <= offered
    refused = [one for one in answer["previews"] if not one["offered"]]
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
