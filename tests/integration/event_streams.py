"""Chat completions and their like as a client reads them that can come back: events with their ids."""

import json
from collections.abc import Iterator
from itertools import islice

import httpx

Events = list[tuple[str, str]]
"""Ids, and what they belong to."""


def body(script: object, **fields: object) -> dict[str, object]:
    """Of a streaming request for what the scripted engine is to say."""
    message = {"role": "user", "content": json.dumps(script)}
    return {"model": "exo/scripted", "messages": [message], "stream": True, **fields}


def events_of(response: httpx.Response) -> Iterator[tuple[str, str]]:
    """The events of a stream, as they come."""
    event_id = ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield event_id, line.removeprefix("data: ")
            event_id = ""


def streamed(
    url: str, request: dict[str, object], most: int = 10**6, last: str = "", path: str = "/v1/chat/completions"
) -> Events:
    """What a client gets that comes with the id `last`, and hangs up after `most` events."""
    headers = {"last-event-id": last} if last else {}
    with httpx.stream("POST", f"{url}{path}", json=request, headers=headers, timeout=30) as response:
        assert response.status_code == 200, response.read()
        return list(islice(events_of(response), most))


def text_of(events: Events) -> str:
    """The text in all of them."""
    return content_of([data for _, data in events if data != "[DONE]"])


def content_of(chunks: list[str]) -> str:
    """The text in chunks of one choice."""
    return "".join(json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks)


def live(url: str) -> list[str]:
    """The generations that are not over."""
    return list(httpx.get(f"{url}/state/generations").json())
