"""JSON objects in files that somebody else may have written: read with a clear refusal, written whole or not at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from exo.errors import Rejected

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None
JsonObject = dict[str, Json]

LARGEST_BYTES = 256 << 20
"""No configuration comes near; the largest tokenizers are about 35 MB."""


def parse_object(text: bytes | str, origin: str) -> JsonObject:
    """The JSON object in `text`. Raises Rejected, naming `origin`, for anything else."""
    try:
        value = cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{origin} is not valid JSON ({error}): fetch it again") from error
    if not isinstance(value, dict):
        raise Rejected(f"{origin} holds no JSON object: fetch it again")
    return cast(JsonObject, value)


def read_object(path: Path) -> JsonObject:
    """The JSON object in the file. Raises Rejected, naming the file, when it is missing, too large or malformed."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise Rejected(f"{path} is larger than {LARGEST_BYTES} bytes: that is no model configuration")
        return parse_object(path.read_bytes(), str(path))
    except OSError as error:
        raise Rejected(f"{path} cannot be read ({error.strerror}): fetch it again") from error


def write_object(path: Path, value: Mapping[str, Json]) -> None:
    """Writes `value` as indented UTF-8 JSON. Not atomic: the caller writes into a folder that nobody sees yet."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
