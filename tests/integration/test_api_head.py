"""HEAD is answered as GET is, without the body: what load balancers and watchers ask."""

import httpx
import pytest


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/state", "/metrics", "/nowhere", "/ollama"])
def test_head_has_the_head_of_get(client: httpx.Client, path: str) -> None:
    asked, got = client.head(path), client.get(path)
    assert (asked.status_code, asked.content) == (got.status_code, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert asked.headers["content-length"]


def test_a_connection_goes_on_after_it(client: httpx.Client) -> None:
    assert [client.head("/health").status_code, client.get("/health").status_code] == [200, 200]


def test_what_there_is_no_get_for_has_no_head(client: httpx.Client) -> None:
    answer = client.head("/v1/chat/completions")
    assert (answer.status_code, "HEAD" in answer.headers["allow"]) == (405, False)


def test_an_endless_stream_has_a_head_too(client: httpx.Client) -> None:
    answer = client.head("/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.get("/health").status_code == 200


def test_it_is_counted_as_what_it_is(client: httpx.Client) -> None:
    client.head("/health")
    assert 'method="HEAD"' in client.get("/metrics").text
