"""`GET /metrics` on a real node, read by Prometheus' own parser."""

import json
from collections.abc import Mapping

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.stack import Stack, wait_until

MODEL = "exo/scripted"


def figures(client: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def figure(client: httpx.Client, name: str, **labels: str) -> float | None:
    return figures(client).get((name, frozenset(labels.items())))


def chat(script: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {"model": "scripted", "messages": [{"role": "user", "content": json.dumps(script)}], **fields}


def test_tokens_and_ends_are_counted_by_model_and_key(client: httpx.Client) -> None:
    usage = client.post("/v1/chat/completions", json=chat({"tokens": ["a", "b", "c"]})).json()["usage"]
    labels = {"model_name": MODEL, "key": "anonymous"}
    wait_until(lambda: figure(client, "vllm:generation_tokens_total", **labels) is not None, "the end in the log", 10)
    assert figure(client, "vllm:generation_tokens_total", **labels) == usage["completion_tokens"]
    assert figure(client, "vllm:prompt_tokens_total", **labels) == usage["prompt_tokens"]
    assert figure(client, "vllm:prompt_tokens_cached_total", **labels) == 0
    ends = figure(client, "vllm:request_success_total", model_name=MODEL, finished_reason="stop")
    assert ends == figure(client, "vllm:request_decode_time_seconds_count", model_name=MODEL) == 1


def test_each_output_but_the_first_is_one_gap(client: httpx.Client) -> None:
    first, gap = "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count"
    before = figures(client)
    client.post("/v1/chat/completions", json=chat({"tokens": ["a", "b", "c", "d"]}))
    after = figures(client)
    key = frozenset({("model_name", MODEL)})
    grown = [after[name, key] - before.get((name, key), 0.0) for name in (first, gap)]
    assert grown == [1, 3]


@pytest.mark.parametrize(
    ("method", "path", "handler", "status"),
    [
        ("GET", "/v1/models/exo/scripted", "/v1/models/{name}", "200"),
        ("GET", "/nowhere", "unmatched", "404"),
        ("POST", "/v1/chat/completions", "/v1/chat/completions", "400"),
    ],
)
def test_requests_are_counted_by_route_and_status(
    client: httpx.Client, method: str, path: str, handler: str, status: str
) -> None:
    labels = {"method": method, "handler": handler, "status": status}
    before = figure(client, "http_requests_total", **labels) or 0
    client.request(method, path)
    assert figure(client, "http_requests_total", **labels) == before + 1


def test_running_and_waiting_are_told_by_model(client: httpx.Client, shared_stack: Stack) -> None:
    body = chat({"tokens": ["x"] * 1000, "pace": 0.05}, stream=True)
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        with httpx.Client(base_url=shared_stack.url) as other:
            running = "vllm:num_requests_running"
            wait_until(lambda: figure(other, running, model_name=MODEL) == 1, "the event of its start", 10)
            assert figure(other, "vllm:num_requests_waiting", model_name=MODEL) == 0
            assert figure(other, "exo_open_generations") == 1
    wait_until(lambda: figure(client, "vllm:num_requests_running", model_name=MODEL) == 0, "a free slot", 10)
    assert figure(client, "vllm:request_success_total", model_name=MODEL, finished_reason="cancelled") == 1


def test_the_cluster_and_its_log_are_told_of(client: httpx.Client) -> None:
    wait_until(lambda: figure(client, "exo_log_lag_events") == 0, "a State that is level with the log", 10)
    position = client.get("/state/position").json()
    assert (figure(client, "exo_log_position") or 0) >= position
    assert figure(client, "exo_nodes") == 1
    assert figure(client, "exo_instances", model_name=MODEL, status="ready") == 1
    assert (figure(client, "exo_log_wal_bytes") or 0) > 0
    assert (figure(client, "exo_nats_connected"), figure(client, "exo_nats_reconnects_total")) == (1, 0)
    assert (figure(client, "process_resident_memory_bytes") or 1) > 0


def test_a_restart_of_nats_is_a_reconnect(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        stack.kill("nats")
        wait_until(lambda: figure(client, "exo_nats_connected") == 0, "the loss of NATS", 10)
        assert figure(client, "exo_log_lag_events") is None
        stack.start(["nats"])
        wait_until(lambda: figure(client, "exo_nats_reconnects_total") == 1, "the reconnect", 20)
