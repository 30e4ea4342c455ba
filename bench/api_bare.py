"""The limit: streams of the same frames from Litestar and uvicorn alone, without NATS. A process of its own.

usage: python -m bench.api_bare PORT
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from litestar import Litestar, Request, get, post
from litestar.response import Stream
from pydantic_core import to_json

from exo.api.generations.sse import DONE, HEADERS, MEDIA_TYPE


@get("/ready")
async def ready() -> str:
    """It is."""
    return "yes"


@post("/v1/chat/completions", status_code=200)
async def chat_completions(request: Request[Any, Any, Any]) -> Stream:
    """What the script in the last message says, as the scripted engine understands it."""
    body = json.loads(await request.body())
    script = json.loads(body["messages"][-1]["content"])
    return Stream(frames(script, body["model"]), media_type=MEDIA_TYPE, headers=HEADERS)


async def frames(script: dict[str, Any], model: str) -> AsyncGenerator[bytes]:
    """A frame for each token, when it is due, as long as those of exo are."""
    task, created, pace = uuid.uuid4().hex, int(time.time()), script["pace"]
    event_id = f"id: chatcmpl-{task}-{created:x}-".encode()
    head = {"id": f"chatcmpl-{task}", "object": "chat.completion.chunk", "created": created, "model": model}
    before = b'data: %b,"choices":[{"index":0,"delta":{"content":' % to_json(head).removesuffix(b"}")
    due = time.monotonic() + script["prefill"]
    await asyncio.sleep(script["prefill"])
    for number, token in enumerate(script["tokens"]):
        due += pace
        await asyncio.sleep(max(0.0, due - time.monotonic()) if pace else 0)
        yield b'%b%d\n%b%b},"finish_reason":null}]}\n\n' % (event_id, number, before, to_json(token))
    yield DONE


def main() -> None:
    """Serve until told to stop."""
    app = Litestar([ready, chat_completions], logging_config=None, openapi_config=None)
    port = int(sys.argv[1])
    uvicorn.run(app, port=port, lifespan="off", access_log=False, log_level="warning", ws="none", backlog=2048)


if __name__ == "__main__":
    main()
