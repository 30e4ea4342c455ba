"""What the cluster has, and where it would put what: on a real node."""

import httpx
import pytest

from exo.domain.state import State
from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


def state_of(client: httpx.Client) -> State:
    return State.model_validate_json(client.get("/state").content)


def test_the_nodes_own_id_and_what_each_node_can_run(client: httpx.Client) -> None:
    node_id = client.get("/node_id").json()
    (node,) = state_of(client).nodes.values()
    assert node.node_id == node_id
    found = client.get("/capabilities").json()
    assert (found["vllm_available"], found["engines"]) == (False, ["scripted"])
    (shown,) = found["nodes"]
    assert (shown["node_id"], shown["name"]) == (node_id, node.facts.hostname)
    assert (shown["memory_bytes"], shown["chip"]) == (node.facts.memory_bytes, node.facts.chip)
    assert (shown["machine"], shown["kind"]) == (node.facts.machine.model, node.facts.machine.kind)
    engines = {one["name"]: one for one in shown["engine_facts"]}
    assert engines.keys() == {"mlx", "vllm"}
    assert [(one["runs"], one["problem"]) for one in engines.values()] == [
        (False, "EXO_ENGINE=scripted leaves it out")
    ] * 2
    assert len(shown["gpus"]) == len(node.facts.gpus)


def test_models_are_shown_with_card_and_nodes(client: httpx.Client) -> None:
    (model,) = client.get("/models").json()["models"]
    assert (model["model_id"], model["status"]) == (MODEL, "ready")
    assert model["card"]["model_id"] == MODEL
    assert [(one["status"], one["held"]) for one in model["nodes"]] == [("ready", 1.0)]
    assert client.get("/download").json() == {"downloads": []}


def test_instances_are_listed_as_each_is_shown(client: httpx.Client) -> None:
    listed = client.get("/instance").json()["instances"]
    ids = [one["instance"]["instance_id"] for one in listed]
    assert ids == sorted(state_of(client).instances)
    assert client.get(f"/instance/{ids[0]}").json() == listed[0]


def test_a_placement_that_is_shown_can_be_had_exactly(client: httpx.Client) -> None:
    before = set(state_of(client).instances)
    shown = client.get("/instance/placement", params={"model": "scripted", "context": 100, "slots": 3}).json()
    assert [shard["node_id"] for shard in shown["shards"]] == shown["instance"]["node_ids"]
    answer = client.post("/instance", params={"wait": 10}, json={"instance": shown["instance"]})
    assert answer.json()["status"] == "done", answer.text
    placed = state_of(client)
    (new,) = set(placed.instances) - before
    instance = placed.instances[new]
    assert list(instance.node_ids) == shown["instance"]["node_ids"]
    assert (instance.context, instance.slots) == (100, 3)
    assert client.delete(f"/instance/{new}", params={"wait": 10}).status_code == 200


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"model": "nothing"}, "model_not_found"),
        ({"model": "scripted", "min_nodes": 2}, "not_enough_nodes"),
        ({"model": "scripted", "engine": "vllm"}, "no_engine"),
        ({"model": "scripted", "context": 2**30}, "context_too_large"),
        ({"model": "scripted", "sharding": "diagonal"}, "invalid_request"),
    ],
)
def test_a_placement_that_cannot_be_says_why(client: httpx.Client, parameters: dict[str, str], code: str) -> None:
    answer = client.get("/instance/placement", params=parameters)
    assert answer.json()["error"]["code"] == code, answer.text


def test_an_instance_on_a_node_that_is_not_there_is_refused(client: httpx.Client) -> None:
    answer = client.post("/instance", json={"instance": {"model_id": "scripted", "node_ids": ["nowhere"]}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "node_not_found")
    answer = client.post("/instance", json={"instance": {"model_id": "scripted", "node_ids": []}})
    assert answer.json()["error"]["param"] == "instance.node_ids"


def test_a_model_that_is_ready_is_not_waited_for(client: httpx.Client) -> None:
    answer = client.get("/instance/await", params={"model": "scripted"}).json()
    assert (answer["model_id"], answer["ready"]) == (MODEL, True)
    assert set(answer["instance_ids"]) <= set(state_of(client).instances)


def test_a_model_is_waited_for_until_it_is_ready_or_the_time_is_over(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        (instance_id,) = state_of(client).instances
        client.delete(f"/instance/{instance_id}", params={"wait": 10})
        wait_until(lambda: not state_of(client).instances, "the end of the instance", 10)
        answer = client.get("/instance/await", params={"model": "scripted", "wait": 0})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (504, "timeout", "model")
        assert "no instance of it is placed" in error["message"]
        client.post("/place_instance", json={"model": "scripted"})
        assert client.get("/instance/await", params={"model": "scripted", "wait": 20}).json()["ready"] is True
