"""`/log/...` on a real node, while its master writes."""

import json
import re
from pathlib import Path

import httpx
import pytest

from exo.domain.messages.events import Recorded
from tests.stack import Stack, wait_until


def generated(client: httpx.Client) -> str:
    """The id of a generation that has ended, and is in the log."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": '{"tokens": ["a", "b"]}'}]}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    task_id = answer.json()["id"].removeprefix("chatcmpl-")
    wait_until(lambda: "GenerationFinished" in types(client, entity=task_id), "the end in the log", 10)
    return task_id


def events(client: httpx.Client, **parameters: str | int) -> list[Recorded]:
    answer = client.get("/log/events", params=parameters)
    if answer.status_code == 404:
        return []
    assert answer.status_code == 200, answer.text
    return [Recorded.model_validate(one) for one in answer.json()["events"]]


def types(client: httpx.Client, **parameters: str | int) -> list[str]:
    return [one.entry.event.type for one in events(client, **parameters)]


def test_events_are_the_last_ones_or_those_from_a_position_on(client: httpx.Client) -> None:
    task_id = generated(client)
    everything = events(client, after=0, limit=1000)
    assert [one.position for one in everything] == list(range(1, len(everything) + 1))
    assert [one.position for one in events(client, after=2, limit=3)] == [3, 4, 5]
    assert [one.position for one in events(client, after=2, before=5)] == [3, 4]
    assert [one.position for one in events(client, since="2", limit=1)] == [2]
    assert events(client, since="1h", limit=2) == everything[:2]
    assert events(client, limit=2, before=len(everything) + 1) == everything[-2:]
    assert types(client, type="MasterElected") == ["MasterElected"]
    assert types(client, entity=task_id[:12]) == ["GenerationQueued", "GenerationDispatched", "GenerationFinished"]


def test_a_page_says_where_to_go_on(client: httpx.Client) -> None:
    seen: list[int] = []
    after: int | None = 0
    end = client.get("/log/events").json()["position"]
    while after is not None:
        page = client.get("/log/events", params={"after": after, "limit": 3, "before": end + 1}).json()
        seen += [one["position"] for one in page["events"]]
        after = page["next_after"]
    assert seen == list(range(1, end + 1))


def test_one_event_is_shown_with_those_of_the_same_cause(client: httpx.Client) -> None:
    task_id = generated(client)
    queued, dispatched, _ = events(client, entity=task_id)
    shown = client.get(f"/log/events/{queued.position}").json()
    assert shown["with"] == [dispatched.position]
    del shown["with"]
    assert Recorded.model_validate(shown) == queued


def test_state_of_the_past_is_what_the_command_line_replays(client: httpx.Client, shared_stack: Stack) -> None:
    position = client.get("/log/events").json()["position"]
    shown = client.get("/log/state", params={"to": position})
    assert shown.json()["position"] == position
    assert shown.text + "\n" == shared_stack.cli("log", "replay", "--json", "--to", str(position)).stdout
    assert client.get("/log/state", params={"to": 0}).json()["nodes"] == {}


def test_a_difference_names_what_came(client: httpx.Client) -> None:
    task_id = generated(client)
    queued, _, finished = events(client, entity=task_id)
    found = client.get("/log/diff", params={"a": queued.position, "b": finished.position}).json()
    assert (list(found["generations"]["removed"]), list(found["ended"]["added"])) == ([task_id], [task_id])
    back = client.get("/log/diff", params={"a": finished.position, "b": queued.position}).json()
    assert back["backwards"] is True
    assert list(back["generations"]["added"]) == [task_id]


def test_why_leads_from_a_runner_to_the_figures_of_its_placement(client: httpx.Client) -> None:
    runner_id = next(iter(client.get("/state/runners").json()))
    story = client.get(f"/log/why/{runner_id}").json()
    told = {step["type"]: step for step in story["steps"]}
    assert told["InstancePlaced"]["cause"]["name"] == "PlaceInstance"
    assert re.search(r"needs \d+\.\d+ [MG]B", told["InstancePlaced"]["text"])
    assert told["RunnerStarted"]["because"] == [told["InstancePlaced"]["position"]]
    assert told["RunnerReady"]["depth"] == 1


def test_why_takes_a_model_with_a_slash_and_a_completions_id(client: httpx.Client) -> None:
    task_id = generated(client)
    assert client.get("/log/why/exo/scripted").json()["entity"] == {"kind": "model", "id": "exo/scripted"}
    assert client.get(f"/log/why/chatcmpl-{task_id}").json()["entity"] == {"kind": "generation", "id": task_id}


def test_statistics_count_every_event(client: httpx.Client) -> None:
    found = client.get("/log/stats").json()
    assert found["events"] == found["position"] == sum(one["events"] for one in found["types"].values())
    assert found["types"]["MasterElected"]["events"] == len(found["masters"]) == 1


def test_verifying_streams_one_result(client: httpx.Client) -> None:
    with client.stream("GET", "/log/verify") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-2] == "event: result"
    result = json.loads(lines[-1].removeprefix("data: "))
    assert result["problems"] == []
    assert result["checked"] == result["position"] > 0


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/log/events?limit=1001", 400, "limit"),
        ("/log/events?limit=0", 400, "limit"),
        ("/log/events?after=-1", 400, "after"),
        ("/log/events?before=x", 400, "before"),
        ("/log/events?type=Nothing", 400, "type"),
        ("/log/events?since=yesterday", 400, "since"),
        ("/log/events?entity=nobody-has-this-name", 404, "entity"),
        ("/log/events/0", 400, "position"),
        ("/log/events/x", 400, "position"),
        ("/log/events/999999999", 404, "position"),
        ("/log/state?to=999999999", 404, "to"),
        ("/log/state?to=9999999999999999999999", 400, "to"),
        ("/log/diff", 400, "a"),
        ("/log/diff?a=1&b=x", 400, "b"),
        ("/log/why/nobody-has-this-name", 404, "entity"),
        ("/log/why/exo/scripted?at=soon", 400, "at"),
    ],
)
def test_a_bad_parameter_is_named(client: httpx.Client, path: str, status: int, param: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    if status == 400:
        assert param in error["message"]


def test_an_ambiguous_beginning_lists_what_it_may_be(client: httpx.Client) -> None:
    first = generated(client)
    others = {generated(client)[0] for _ in range(8)}
    beginning = first[0] if first[0] in others else others.pop()
    answer = client.get("/log/events", params={"entity": beginning})
    assert answer.status_code == 400
    assert "may be any of" in answer.json()["error"]["message"]


def test_without_a_log_the_answer_says_what_to_do(shared_stack: Stack) -> None:
    api = Stack(shared_stack.home.parent / "without-master")
    api.environment["EXO_NATS_URL"] = shared_stack.nats_url
    try:
        api.start(["api"])
        wait_until(api.is_up, "the API of a node without a master", 30)
        for path in ("events", "events/1", "state", "diff?a=1", "why/x", "stats", "verify"):
            answer = httpx.get(f"{api.url}/log/{path}", timeout=10)
            assert answer.status_code == 503, path
            assert "start `exo master`" in answer.json()["error"]["message"]
    finally:
        api.stop()


def test_a_log_that_cannot_be_read_is_no_fault_of_the_api(shared_stack: Stack) -> None:
    api = Stack(shared_stack.home.parent / "broken-log")
    api.environment["EXO_NATS_URL"] = shared_stack.nats_url
    log: Path = api.home / "log" / "exo.sqlite3"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"not a database" * 100)
    try:
        api.start(["api"])
        wait_until(api.is_up, "the API", 30)
        answer = httpx.get(f"{api.url}/log/stats", timeout=10)
        assert answer.status_code == 503
        assert "this is no SQLite file" in answer.json()["error"]["message"]
    finally:
        api.stop()
