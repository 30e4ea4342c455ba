"""An API process that is killed: what becomes of the generations that it asked for."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from event_streams import body, events_of, live, streamed, text_of

from exo.domain.limits import UNREAD
from exo.domain.messages.events import CancellationRequested
from tests.cluster.history import logged_of
from tests.stack import Stack, wait_until

WORDS = [f"w{number} " for number in range(400)]
LONG = {"tokens": WORDS, "pace": 0.2}


@pytest.fixture
def other_api(stack: Stack, tmp_path: Path) -> Iterator[Stack]:
    """A second API process of the same cluster."""
    other = Stack(tmp_path / "other", nats_url=stack.nats_url)
    other.start(["api"])
    try:
        other.wait_ready()
        yield other
    finally:
        other.stop()


def test_what_nobody_reads_any_more_ends_and_the_rest_goes_on(stack: Stack, other_api: Stack) -> None:
    """Of three: one that goes on in the background, one whose client comes back elsewhere, one whose never does."""
    requests = [body(LONG, background=True), body(LONG, seed=1), body(LONG, seed=2)]
    with httpx.Client(timeout=30) as client:
        sent = [client.build_request("POST", f"{stack.url}/v1/chat/completions", json=one) for one in requests]
        streams = [events_of(client.send(one, stream=True)) for one in sent]
        begun = [list(islice(stream, 3)) for stream in streams]
        stack.kill("api")
    background, returned, abandoned = (json.loads(events[0][1])["id"].partition("-")[2] for events in begun)
    headers = {"last-event-id": begun[1][-1][0]}
    url = f"{other_api.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=requests[1], headers=headers, timeout=60) as again:
        coming = events_of(again)
        assert text_of(begun[1] + list(islice(coming, 3))) == "".join(WORDS[:5])
        assert set(live(other_api.url)) == {background, returned, abandoned}
        wait_until(lambda: abandoned not in live(other_api.url), "the end of what nobody reads", UNREAD + 10)
        assert set(live(other_api.url)) == {background, returned}
    wait_until(lambda: live(other_api.url) == [background], "the end of what is not read any more", 2)
    (ended, _) = logged_of(stack, CancellationRequested)
    assert ended.task_id == abandoned
    assert "the API process that asked is gone" in ended.reason
    rest = streamed(other_api.url, requests[2], last=begun[2][-1][0])
    assert json.loads(rest[-2][1])["error"]["code"] == "cancelled"
    assert "".join(WORDS).startswith(text_of(begun[2] + rest[:-2]))


def test_an_api_process_that_is_started_again_in_time_goes_on_with_its_clients(stack: Stack) -> None:
    request = body({"tokens": WORDS[:100], "pace": 0.05})
    with httpx.stream("POST", f"{stack.url}/v1/chat/completions", json=request, timeout=30) as response:
        coming = events_of(response)
        events = list(islice(coming, 5))
        stack.kill("api")
    stack.start(["api"])
    stack.wait_ready()
    events += streamed(stack.url, request, last=events[-1][0])
    assert (text_of(events), events[-1][1]) == ("".join(WORDS[:100]), "[DONE]")
