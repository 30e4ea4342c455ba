"""`exo chat`: a conversation in the terminal."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, cast

import httpx
import typer

from exo.config import load_settings
from exo.errors import ExoError

Message = dict[str, str]


def chat(
    prompt: Annotated[str | None, typer.Argument(help="One question; without it, a conversation begins.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, by its full id or its short name.")] = None,
    system: Annotated[str | None, typer.Option(help="Instructions that come before the conversation.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 always takes the likeliest token.")] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")] = None,
) -> None:
    """Talk to a model; the answer appears as it is generated. Ends with Ctrl-D. A question may come through a pipe."""
    settings = load_settings()
    history: list[Message] = [{"role": "system", "content": system}] if system else []
    options: dict[str, object] = {"model": model or settings.default_model, "temperature": temperature}
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    for question in [prompt] if prompt is not None else _questions():
        history.append({"role": "user", "content": question})
        history.append({"role": "assistant", "content": _answer(options, history)})


def _questions() -> Iterator[str]:
    if not sys.stdin.isatty():
        yield sys.stdin.read()
        return
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.strip():
            yield line


def _answer(options: dict[str, object], history: list[Message]) -> str:
    from exo.cli.client import api_client, refused, unreachable

    body = {**options, "messages": history, "stream": True}
    parts: list[str] = []
    with api_client(load_settings(), timeout=None) as client:
        try:
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    response.read()
                    refused(response)
                for text in _texts(response):
                    parts.append(text)
                    sys.stdout.write(text)
                    sys.stdout.flush()
        except httpx.TransportError as error:
            unreachable(client, error)
    print()
    return "".join(parts)


def _texts(response: httpx.Response) -> Iterator[str]:
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data in {line, "[DONE]"}:
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise ExoError(str(chunk["error"]["message"]))
        for choice in chunk["choices"]:
            yield cast("str", choice["delta"].get("content") or "")
