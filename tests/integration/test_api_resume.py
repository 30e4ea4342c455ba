"""Streams that lose their connection, and clients that come back: to the same API process, a new one, or another."""

import json
import re
import signal
from collections.abc import Iterator
from itertools import islice

import httpx
import pytest
from event_streams import Events, body, content_of, events_of, live, streamed, text_of

from exo.api.generations.event_ids import parse_event_id
from exo.api.openai.chat_answers import ID_PREFIX
from exo.bus.client import connect
from exo.bus.streams import CHUNKS
from tests.stack import Stack, wait_until

WORDS = [f"w{number} " for number in range(60)]
PROMPTS = {"model": "exo/scripted", "prompt": ["a b c", "d e", "f"]}
SLOW = {"tokens": WORDS, "pace": 0.05}


@pytest.fixture(scope="module")
def other_api(shared_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A second API process of the same cluster."""
    other = Stack(tmp_path_factory.mktemp("other") / "home", nats_url=shared_stack.nats_url)
    other.start(["api"])
    try:
        other.wait_ready()
        yield other
    finally:
        other.stop()


def test_every_event_has_an_id_of_its_own(shared_stack: Stack) -> None:
    events = streamed(shared_stack.url, body("a b c"))
    ids = [event_id for event_id, _ in events]
    assert all(re.fullmatch(r"chatcmpl-[0-9a-f]{32}-[0-9a-f]{8}-\d+", event_id) for event_id in ids)
    assert len(set(ids)) == len(ids)


def test_the_rest_of_an_ended_stream_is_the_same_byte_for_byte(shared_stack: Stack, other_api: Stack) -> None:
    request = body({"tokens": WORDS, "pace": 0.01})
    events = streamed(shared_stack.url, request)
    assert text_of(events) == "".join(WORDS)
    for seen in (0, 7, len(events) - 2, len(events) - 1):
        for url in (shared_stack.url, other_api.url):
            assert streamed(url, request, last=events[seen][0]) == events[seen + 1 :]


def test_a_lost_connection_ends_what_was_not_asked_to_go_on(shared_stack: Stack) -> None:
    request = body(SLOW)
    begun = streamed(shared_stack.url, request, most=5)
    wait_until(lambda: not live(shared_stack.url), "the generation to end", 2)
    rest = streamed(shared_stack.url, request, last=begun[-1][0])
    assert json.loads(rest[-2][1])["error"]["code"] == "cancelled"
    assert "".join(WORDS).startswith(text_of(begun + rest[:-2]))


def test_a_generation_in_the_background_is_read_on_by_another_process_without_gap_or_double(
    shared_stack: Stack, other_api: Stack
) -> None:
    request = body(SLOW, background=True)
    events: Events = []
    urls = [shared_stack.url, other_api.url, shared_stack.url, other_api.url]
    for url in urls:
        events += streamed(url, request, most=9, last=events[-1][0] if events else "")
    events += streamed(other_api.url, request, last=events[-1][0])
    assert text_of(events) == "".join(WORDS)
    numbers = [int(event_id.rpartition("-")[2]) for event_id, _ in events]
    assert numbers == list(range(len(WORDS) + 3))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_stream_goes_on_exactly_after_the_api_was_killed(stack: Stack, number: signal.Signals) -> None:
    request = body(SLOW, background=True)
    with httpx.stream("POST", f"{stack.url}/v1/chat/completions", json=request, timeout=30) as response:
        coming = events_of(response)
        events = list(islice(coming, 10))
        stack.end("api", number)
        with pytest.raises(httpx.TransportError):
            events.extend(coming)
    stack.start(["api"])
    stack.wait_ready()
    events += streamed(stack.url, request, last=events[-1][0])
    assert text_of(events) == "".join(WORDS)
    assert events[-1][1] == "[DONE]"


def test_two_read_one_generation_and_it_ends_with_the_last_of_them(shared_stack: Stack) -> None:
    request = body(SLOW)
    with httpx.stream("POST", f"{shared_stack.url}/v1/chat/completions", json=request, timeout=30) as first:
        coming = events_of(first)
        begun = list(islice(coming, 3))
        again = streamed(shared_stack.url, request, most=10, last=begun[-1][0])
        assert len(live(shared_stack.url)) == 1
    assert text_of(begun + again) == "".join(WORDS[:12])
    wait_until(lambda: not live(shared_stack.url), "the generation to end", 2)


def of_each_choice(events: Events) -> dict[int | None, list[str]]:
    """What a stream has of each choice, and under None of all of them."""
    found: dict[int | None, list[str]] = {}
    for _, data in events:
        choices = json.loads(data)["choices"] if data != "[DONE]" else []
        found.setdefault(choices[0]["index"] if choices else None, []).append(data)
    return found


@pytest.mark.parametrize(
    ("path", "request_body"),
    [
        ("/v1/chat/completions", body({"tokens": ["a", "b", "c"], "pace": 0.01}, n=3)),
        ("/v1/completions", {**PROMPTS, "n": 2, "stream": True, "stream_options": {"include_usage": True}}),
    ],
    ids=["chat", "completions"],
)
def test_a21_the_rest_of_several_choices_comes_after_every_event_at_any_process(
    shared_stack: Stack, other_api: Stack, path: str, request_body: dict[str, object]
) -> None:
    events = streamed(shared_stack.url, request_body, path=path)
    whole = of_each_choice(events)
    assert len({event_id for event_id, _ in events}) == len(events)
    for cut, (last, _) in enumerate(events):
        url = (shared_stack.url, other_api.url)[cut % 2]
        rest = streamed(url, request_body, last=last, path=path)
        assert of_each_choice(events[: cut + 1] + rest) == whole


def test_a21_several_choices_go_on_in_the_background_and_are_read_on_in_turns(
    shared_stack: Stack, other_api: Stack
) -> None:
    request = body(SLOW, background=True, n=3)
    events: Events = []
    for url in [shared_stack.url, other_api.url] * 3:
        events += streamed(url, request, most=20, last=events[-1][0] if events else "")
    events += streamed(other_api.url, request, last=events[-1][0])
    texts = of_each_choice(events)
    assert texts.pop(None) == ["[DONE]"]
    assert sorted(index for index in texts if index is not None) == [0, 1, 2]
    assert [content_of(told) for told in texts.values()] == ["".join(WORDS)] * 3


def test_a21_several_choices_of_a_client_that_is_gone_end_and_say_so_to_who_comes_back(shared_stack: Stack) -> None:
    request = body(SLOW, n=3)
    begun = streamed(shared_stack.url, request, most=20)
    wait_until(lambda: not live(shared_stack.url), "the generations to end", 2)
    rest = streamed(shared_stack.url, request, last=begun[-1][0])
    assert json.loads(rest[-2][1])["error"]["code"] == "cancelled"
    assert all("".join(WORDS).startswith(content_of(told)) for told in of_each_choice(begun + rest[:-2]).values())


def test_a21_several_choices_in_the_background_are_cancelled_together(shared_stack: Stack) -> None:
    request = body(SLOW, background=True, n=3)
    begun = streamed(shared_stack.url, request, most=3)
    assert len(live(shared_stack.url)) == 3
    answer = f"{shared_stack.url}/v1/cancel/{json.loads(begun[0][1])['id']}"
    assert httpx.post(answer, params={"wait": 10}, timeout=20).json()["status"] == "done"
    wait_until(lambda: not live(shared_stack.url), "the generations to end", 2)


def refusal(url: str, request: dict[str, object], last: str) -> tuple[int, str, str]:
    response = httpx.post(f"{url}/v1/chat/completions", json=request, headers={"last-event-id": last}, timeout=30)
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


def test_an_id_that_nobody_gave_is_a_404_that_says_so(shared_stack: Stack) -> None:
    assert refusal(shared_stack.url, body("a"), "17")[:2] == (404, "event_not_found")
    status, code, message = refusal(shared_stack.url, body("a"), f"chatcmpl-{'0' * 32}-6919c3a2-3")
    assert (status, code) == (404, "generation_expired")
    assert "an hour" in message


def test_an_id_of_another_request_is_refused(shared_stack: Stack) -> None:
    last, _ = streamed(shared_stack.url, body("a b"))[0]
    assert refusal(shared_stack.url, body("a b", n=2), last)[:2] == (400, "invalid_request")
    status, code, message = refusal(shared_stack.url, body("c d"), last)
    assert (status, code) == (400, "invalid_request")
    assert "another request" in message


async def test_an_answer_whose_beginning_the_stream_has_dropped_is_a_404(shared_stack: Stack) -> None:
    request = body("a b")
    last, _ = streamed(shared_stack.url, request)[-1]
    bus = await connect(shared_stack.nats_url, "home", "tester")
    subject = bus.subjects.chunks_of(parse_event_id(last, ID_PREFIX).task_id)
    first = await bus.js.get_msg(CHUNKS, seq=1, subject=subject, next=True)
    await bus.js.delete_msg(CHUNKS, first.seq or 0)
    await bus.close()
    assert refusal(shared_stack.url, request, last)[:2] == (404, "generation_expired")


def test_chunks_that_the_stream_has_dropped_are_a_404(stack: Stack) -> None:
    request = body("a b")
    last, _ = streamed(stack.url, request)[0]
    stack.kill("nats")
    stack.kill("worker")
    stack.start(["nats", "worker"])
    stack.wait_ready()
    assert refusal(stack.url, request, last)[:2] == (404, "generation_expired")
