"""The cluster's own endpoints on a real node."""

import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from exo.api.cluster.events import POSITION_MOST
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from tests.stack import Stack, wait_until


def placed(client: httpx.Client) -> list[str]:
    return list(client.get("/state/instances").json())


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200
    assert client.get("/ready").json() == {"ready": True}


def test_state_is_the_models_own_bytes(client: httpx.Client) -> None:
    content = client.get("/state").content
    assert State.model_validate_json(content).model_dump_json().encode() == content


def test_a_part_of_state_is_found_by_its_path(client: httpx.Client) -> None:
    state = client.get("/state").json()
    node_id = next(iter(state["nodes"]))
    assert client.get("/state/epoch").json() == state["epoch"]
    holding = client.get(f"/state/nodes/{node_id}/holdings/exo/scripted/status")
    assert holding.json() == "ready"
    assert client.get("/state/nodes/nope").status_code == 404


def test_models_are_listed_and_found(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [(model["id"], model["object"], model["status"]) for model in listed["data"]] == [
        ("exo/scripted", "model", "ready")
    ]
    assert client.get("/v1/models/exo/scripted").json() == listed["data"][0]
    assert client.get("/v1/models/scripted").json() == listed["data"][0]
    assert client.get("/v1/models/gpt-9").status_code == 404


def test_events_come_from_a_position_on_and_then_live(client: httpx.Client, shared_stack: Stack) -> None:
    position = client.get("/state/position").json()
    with client.stream("GET", "/events", params={"after": 0}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        seen = [_recorded(lines) for _ in range(position)]
        assert [recorded.position for recorded in seen] == list(range(1, position + 1))
        assert seen[0].entry.event.type == "MasterElected"
        httpx.post(f"{shared_stack.url}/v1/cancel/nothing")
        assert _recorded(lines).entry.event.type == "CommandRejected"


def test_events_go_on_after_the_last_one_that_a_client_has(client: httpx.Client) -> None:
    with client.stream("GET", "/events", params={"after": 0}, headers={"last-event-id": "2"}) as response:
        assert _recorded(response.iter_lines()).position == 3


def _recorded(lines: Iterator[str]) -> Recorded:
    position = 0
    for line in lines:
        if line.startswith("id: "):
            position = int(line.removeprefix("id: "))
        if line.startswith("data: "):
            recorded = Recorded.model_validate_json(line.removeprefix("data: "))
            assert recorded.position == position
            return recorded
    raise AssertionError("the stream of events ended")


def test_an_instance_is_placed_and_deleted(client: httpx.Client) -> None:
    before = placed(client)
    answer = client.post("/place_instance", params={"wait": 10}, json={"model": "scripted", "slots": 2, "context": 100})
    assert (answer.status_code, answer.json()["status"]) == (200, "done")
    (instance_id,) = set(placed(client)) - set(before)
    shown = client.get(f"/instance/{instance_id}").json()
    assert (shown["instance"]["slots"], shown["instance"]["context"]) == (2, 100)
    assert len(shown["runners"]) == 1
    answer = client.delete(f"/instance/{instance_id}", params={"wait": 10})
    assert answer.json()["events"][-1]["entry"]["event"]["type"] == "InstanceDeleted"
    assert client.get(f"/instance/{instance_id}").json()["error"]["code"] == "instance_not_found"


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        (
            "GET",
            "/instance/previews?model=scripted&contxt=5",
            "model, context, min_nodes, node_ids, sharding, backend, engine",
        ),
        ("GET", "/log/events?contxt=5", "after, before, limit, type, entity, since"),
        ("GET", "/v1/usage?contxt=5", "by, since"),
        ("GET", "/events?contxt=5", "after"),
        ("DELETE", "/instance/nope?contxt=5", "wait"),
    ],
)
def test_a_parameter_that_an_endpoint_does_not_have_is_refused_by_its_name(
    client: httpx.Client, method: str, path: str, known: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "contxt")
    assert error["message"].endswith(f"there are {known}")


def test_a_list_is_given_by_its_name_once_for_each(client: httpx.Client) -> None:
    (node_id,) = client.get("/state/nodes").json()
    answer = client.get("/instance/previews", params={"model": "scripted", "node_ids": [node_id, node_id[:12]]})
    assert answer.status_code == 200
    assert answer.json()["previews"]


def test_who_names_no_node_is_told_by_which_parameter(client: httpx.Client) -> None:
    body = {"node_id": "nobody", "model_id": "scripted"}
    error = client.post("/download/start", json=body).json()["error"]
    assert (error["code"], error["param"]) == ("node_not_found", "node_id")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/log/events?limit=2000", "limit: it must be a whole number from 1 to 1000"),
        ("/log/events?limit=many", "limit: it must be a whole number from 1 to 1000"),
        ("/events?after=-1", f"after: it must be a whole number from 0 to {POSITION_MOST}"),
        ("/v1/usage?by=hour", "by: it must be one of model, key, day"),
        ("/instance/previews?model=scripted&sharding=no", "sharding: it must be one of pipeline, tensor"),
        ("/instance/previews?model=", "model: it must be a text of at least 1 characters"),
        ("/instance/previews?model=scripted&context=0", "context: it must be a whole number above 0 to"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_those_that_can(client: httpx.Client, path: str, message: str) -> None:
    answer = client.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_request")
    assert error["param"] == message.partition(":")[0]
    assert error["message"].startswith(message)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing"])
def test_a_path_without_an_endpoint_says_where_they_are_listed(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert "/schema/openapi.json lists the endpoints" in answer.json()["error"]["message"]


def test_an_engine_that_no_node_has_is_refused_as_the_engine(client: httpx.Client) -> None:
    body = {"model": "scripted", "engine": "vllm"}
    answer = client.post("/place_instance", params={"wait": 10}, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (409, "no_engine", "engine")


def test_a_parameter_that_is_given_twice_is_refused_by_its_name(client: httpx.Client) -> None:
    answer = client.get("/log/events?limit=1&limit=2")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", "limit")
    assert "2 times" in error["message"]


def test_an_endpoint_without_parameters_takes_those_of_other_servers(client: httpx.Client) -> None:
    assert client.get("/v1/models", params={"api-version": "1"}).status_code == 200


def test_a_refused_command_is_an_error_where_it_is_waited_for(client: httpx.Client) -> None:
    answer = client.delete("/instance/nope", params={"wait": 10})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "instance_not_found"


def test_a_placement_with_more_context_than_the_model_has_names_its_own_parameter(client: httpx.Client) -> None:
    most = client.get("/v1/models/scripted").json()["context_length"]
    body = {"model": "scripted", "context": most + 1}
    answer = client.post("/place_instance", params={"wait": 10}, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_too_large", "context")


def test_a_command_that_is_not_waited_for_can_be_looked_up(client: httpx.Client) -> None:
    answer = client.delete("/instance/nope")
    assert answer.status_code == 202
    path = f"/v1/commands/{answer.json()['command_id']}"
    assert answer.headers["location"] == path
    wait_until(lambda: client.get(path).json()["status"] != "pending", "the command's outcome", 5)
    outcome = client.get(path).json()
    assert (outcome["status"], outcome["code"]) == ("rejected", "instance_not_found")
    assert "nope" in outcome["reason"]


def test_a_command_that_nobody_sent_is_pending_or_no_command(client: httpx.Client) -> None:
    assert client.get(f"/v1/commands/{'0' * 32}").json()["status"] == "pending"
    assert client.get("/v1/commands/nope").status_code == 404


def test_a_generation_is_cancelled_by_the_id_of_its_answer(client: httpx.Client, shared_stack: Stack) -> None:
    script = json.dumps({"tokens": ["x"] * 500, "pace": 0.05})
    body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": script}]}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        answer_id = json.loads(next(lines).removeprefix("data: "))["id"]
        assert httpx.post(f"{shared_stack.url}/v1/cancel/{answer_id}?wait=5").status_code == 200
        rest = [line for line in lines if line.startswith("data: ")]
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "cancelled"
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["message"]
    assert rest[-1] == "data: [DONE]"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/health", 405),
        ("GET", "/events?after=-1", 400),
        ("GET", "/events?after=x", 400),
        ("POST", "/place_instance", 400),
        ("DELETE", "/instance/x?wait=never", 400),
        ("GET", "/instance/%00", 404),
        ("GET", "/v1/models/%2e%2e/x", 404),
        ("GET", f"/state/ended/{'9' * 5000}", 404),
        ("GET", f"/events?after={2**64}", 400),
    ],
)
def test_every_error_has_the_envelope(client: httpx.Client, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_a_bad_parameter_is_named(client: httpx.Client) -> None:
    error = client.get("/events?after=-1").json()["error"]
    assert error["param"] == "after"
    assert error["message"].startswith("after: ")


def test_a_body_that_is_cut_short_is_no_fault_of_the_server(client: httpx.Client, shared_stack: Stack) -> None:
    with socket.create_connection(("127.0.0.1", shared_stack.api_port)) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    assert client.get("/health").status_code == 200
    assert "Traceback" not in shared_stack.output("api")


def test_a_request_keeps_its_id_or_gets_one(client: httpx.Client) -> None:
    assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    given = client.get("/nowhere", headers={"x-request-id": "an id with spaces"}).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", given)


@pytest.mark.parametrize("path", ["/schema", "/schema/"])
def test_the_schema_is_shown_without_a_page_that_loads_something(client: httpx.Client, path: str) -> None:
    shown = client.get(path)
    assert shown.headers["content-type"] == "application/json"
    assert shown.json() == client.get("/schema/openapi.json").json()
    assert "/v1/models" in client.get("/schema/openapi.yaml").text


@pytest.mark.parametrize("page", ["redoc", "swagger", "elements", "rapidoc", "oauth2-redirect.html"])
def test_there_are_no_pages_with_scripts_of_others(client: httpx.Client, page: str) -> None:
    assert client.get(f"/schema/{page}").status_code == 404


def test_the_schema_names_every_endpoint(client: httpx.Client) -> None:
    paths = client.get("/schema/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/models", "/events", "/ready", "/place_instance"} <= set(paths)


def test_the_schema_shows_what_a_body_looks_like(client: httpx.Client) -> None:
    paths = client.get("/schema/openapi.json").json()["paths"]
    for path in ("/v1/chat/completions", "/place_instance"):
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert (
            client.post(path, json={**example, "no_such_parameter": 1}).json()["error"]["param"] == "no_such_parameter"
        )


def test_a_small_response_is_not_held_back_by_nagles_delay(client: httpx.Client) -> None:
    took = [client.get("/health").elapsed.total_seconds() for _ in range(10)]
    assert min(took) < 0.03  # the delay is 0.04 s each time


@pytest.mark.parametrize("path", ["/instance/previews", "/instance/placement", "/instance/await"])
def test_a_query_parameter_that_is_missing_is_named(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "model")
    assert error["message"] == f"'model' is missing: {path} needs it"


def test_a_parameter_is_called_as_clients_have_it(client: httpx.Client) -> None:
    error = client.get("/v1/responses/resp_1?stream=maybe").json()["error"]
    assert (error["param"], error["message"]) == ("stream", "stream: it must be true or false")
