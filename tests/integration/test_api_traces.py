"""Where the time of a generation went, and how fast it was: on a real node."""

import json
from collections.abc import Iterator, Mapping

import httpx
import pytest

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


def chat(script: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {"model": "scripted", "messages": [{"role": "user", "content": json.dumps(script)}], **fields}


def answered(client: httpx.Client, script: Mapping[str, object]) -> str:
    """The id of a completion whose end is in the log."""
    completion_id = str(client.post("/v1/chat/completions", json=chat(script)).json()["id"])
    path = f"/v1/traces/{completion_id}"
    wait_until(lambda: client.get(path).json().get("ended_at") is not None, "the end in the log", 10)
    return completion_id


def first_id(lines: Iterator[str]) -> str:
    """The id that a stream's first event tells."""
    data = next(line for line in lines if line.startswith("data: "))
    return str(json.loads(data.removeprefix("data: "))["id"])


def test_the_spans_of_a_generation_follow_one_another(client: httpx.Client) -> None:
    completion_id = answered(client, {"tokens": ["a", "b", "c"], "pace": 0.02})
    trace = client.get(f"/v1/traces/{completion_id}").json()
    assert (trace["object"], trace["model_id"], trace["finish_reason"]) == ("trace", MODEL, "stop")
    whole, *parts = trace["spans"]
    assert [span["name"] for span in parts] == ["queue", "dispatch", "prefill", "decode"]
    assert {span["parent"] for span in parts} == {whole["name"]} == {"generation"}
    ends = [whole["start"], *(span["start"] + span["seconds"] for span in parts)]
    assert [span["start"] for span in parts] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(whole["start"] + whole["seconds"])
    assert parts[-1]["seconds"] > 0


def test_a_trace_names_the_ranks_that_computed(client: httpx.Client) -> None:
    trace = client.get(f"/v1/traces/{answered(client, {'tokens': ['a']})}").json()
    shown = client.get(f"/instance/{trace['instance_id']}").json()["instance"]
    assert [(one["rank"], one["runner_id"], one["node_id"]) for one in trace["ranks"]] == [
        (shard["rank"], shard["runner_id"], shard["node_id"]) for shard in shown["shards"]
    ]


def test_the_last_generations_are_listed_the_newest_first(client: httpx.Client) -> None:
    ids = [answered(client, {"tokens": ["a"]}) for _ in range(3)]
    listed = client.get("/v1/traces", params={"limit": 2, "model": MODEL}).json()["data"]
    assert [f"chatcmpl-{one['task_id']}" for one in listed] == [ids[2], ids[1]]
    assert client.get("/v1/traces", params={"model": "no/model"}).json()["data"] == []


def test_a_generation_that_runs_has_a_span_without_an_end(client: httpx.Client, shared_stack: Stack) -> None:
    body = chat({"tokens": ["x"] * 1000, "pace": 0.05}, stream=True)
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        completion_id = first_id(lines)
        with httpx.Client(base_url=shared_stack.url) as other:
            path = f"/v1/traces/{completion_id}"
            wait_until(lambda: len(other.get(path).json().get("spans", [])) == 3, "its dispatch in the log", 10)
            trace = other.get(path).json()
    assert [(span["name"], span["seconds"] is None) for span in trace["spans"]] == [
        ("generation", True),
        ("queue", False),
        ("dispatch", True),
    ]


def test_a_generation_that_nobody_asked_for_has_no_trace(client: httpx.Client) -> None:
    answer = client.get("/v1/traces/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "generation_not_found")


def test_a_measured_answer_is_an_answer_with_figures(client: httpx.Client) -> None:
    body = chat({"tokens": ["a", "b", "c", "d"], "pace": 0.01}, temperature=0)
    plain = client.post("/v1/chat/completions", json=body).json()
    measured = client.post("/bench/chat/completions", json=body).json()
    stats = measured.pop("generation_stats")
    assert measured["choices"] == plain["choices"]
    assert measured["usage"] == plain["usage"]
    assert (stats["prompt_tokens"], stats["generation_tokens"]) == (
        plain["usage"]["prompt_tokens"],
        plain["usage"]["completion_tokens"],
    )
    assert stats["generation_tps"] == pytest.approx((stats["generation_tokens"] - 1) / stats["timings"]["decode"])


@pytest.mark.parametrize(("name", "value"), [("stream", True), ("n", 2)])
def test_what_cannot_be_measured_is_refused_by_name(client: httpx.Client, name: str, value: object) -> None:
    answer = client.post("/bench/chat/completions", json=chat({"tokens": ["a"]}, **{name: value}))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_a_generation_is_cancelled_by_the_command_that_started_it(client: httpx.Client, shared_stack: Stack) -> None:
    body = chat({"tokens": ["x"] * 1000, "pace": 0.05}, stream=True)
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        task_id = first_id(lines).removeprefix("chatcmpl-")
        with httpx.Client(base_url=shared_stack.url) as other:
            query = {"entity": task_id, "type": "GenerationQueued", "after": 0}
            wait_until(lambda: other.get("/log/events", params=query).json().get("events"), "its event in the log", 10)
            (event,) = other.get("/log/events", params=query).json()["events"]
            cancelled = other.post(f"/v1/cancel/{event['entry']['cause_id']}", params={"wait": 5})
        assert cancelled.json()["status"] == "done", cancelled.text
        *_, error, _ = [line for line in lines if line.startswith("data: ")]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "cancelled"
