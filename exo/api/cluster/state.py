"""`GET /state`: everything that decisions rest on."""

import re
from typing import Any, cast

from litestar import Response, get
from pydantic_core import from_json

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response, written_json
from exo.domain.state import State
from exo.errors import Rejected

_INDEX = re.compile(r"[0-9]{1,9}")


@get("/state", summary="The cluster's State", tags=["Cluster"], operation_class=operation(answer=State))
async def show_state(api: Api) -> Response[bytes]:
    """State as this process knows it, byte for byte what the log's replay gives at the same position."""
    return written_json(api.state.model_dump_json().encode())


@get("/state/{path:path}", summary="A part of State", tags=["Cluster"])
async def show_part(path: str, api: Api) -> Response[bytes]:
    """What lies at a path of keys and indexes, such as `instances` or `ended/0`. A key that holds a slash is one
    step for all that."""
    part: Any = from_json(api.state.model_dump_json())
    left = path.strip("/")
    while left:
        part, left = _step(part, left)
    return json_response(part)


def _step(part: Any, path: str) -> tuple[Any, str]:
    """The longest key in front of `path` that is there, and what is left of the path."""
    ends = [index for index, character in enumerate(path) if character == "/"]
    for end in [len(path), *reversed(ends)]:
        key = path[:end]
        if isinstance(part, dict) and key in part:
            return cast(dict[str, Any], part)[key], path[end + 1 :]
        if isinstance(part, list) and _INDEX.fullmatch(key) and int(key) < len(cast(list[Any], part)):
            return cast(list[Any], part)[int(key)], path[end + 1 :]
    raise Rejected(f"State has nothing at '{path}'", code="not_found")
