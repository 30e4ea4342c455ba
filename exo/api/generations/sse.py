"""Server-sent events: the frames, and the response that carries them."""

from collections.abc import AsyncIterator

from litestar.response import Stream

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Nothing on the way is to keep events back."""
DONE = b"data: [DONE]\n\n"
MEDIA_TYPE = "text/event-stream"


def data(json: bytes) -> bytes:
    """One event with a JSON value, which has no line break in it."""
    return b"data: " + json + b"\n\n"


def event(name: str, json: bytes) -> bytes:
    """One event with a name, by which clients tell what its value is."""
    return b"event: %b\n" % name.encode() + data(json)


def recorded(position: int, json: str) -> bytes:
    """One event with a position, which a client that comes back names as `Last-Event-ID`."""
    return f"id: {position}\ndata: {json}\n\n".encode()


def comment(text: str) -> bytes:
    """A line that clients skip: a sign of life."""
    return f": {' '.join(text.split())}\n\n".encode()


def event_stream(frames: AsyncIterator[bytes], media_type: str = MEDIA_TYPE) -> Stream:
    """The response. Another media type is for streams of another form, which are not to be kept back either."""
    return Stream(frames, status_code=200, media_type=media_type, headers=HEADERS)
