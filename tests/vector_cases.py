"""The vectors in tests/vectors: what they say, how their text is cut, and what counts as their outcome."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "vectors"
TOKENS = "gpt_oss_tokens.json"
RANDOM_CUTS = 12

Vector = Mapping[str, Any]
Outcome = Mapping[str, Any]
"""`content`, `reasoning`, `tool_calls` (each `name` and `arguments`, a text), `finish_reason`, and more where known."""


@cache
def vectors() -> list[Vector]:
    """All of them, without those of placement."""
    files = [file for file in sorted(FOLDER.glob("*.json")) if file.name not in (TOKENS, "placement.json")]
    return [vector for file in files for vector in json.loads(file.read_text())["vectors"]]


@cache
def _tokens() -> Mapping[str, str]:
    return json.loads((FOLDER / TOKENS).read_text())


def pieces(vector: Vector) -> list[bytes]:
    """The generated text as the vector has it, a token each."""
    if "byte_chunks" in vector:
        return [bytes.fromhex(piece) for piece in vector["byte_chunks"]]
    if "chunks" in vector:
        return [piece.encode(errors="surrogatepass") for piece in vector["chunks"]]
    return [bytes.fromhex(_tokens()[str(token)]) for token in vector["token_ids"]]


def cuts(vector: Vector) -> Iterator[list[bytes]]:
    """The text cut as the vector has it, not at all, into characters, into bytes, and at random places."""
    given = pieces(vector)
    whole = b"".join(given)
    yield given
    yield [whole]
    yield [bytes([byte]) for byte in whole] or [b""]
    if is_text(whole):
        yield [letter.encode() for letter in whole.decode()] or [b""]
    chance = random.Random(vector["id"])
    for _ in range(RANDOM_CUTS):
        borders = sorted(chance.randint(0, len(whole)) for _ in range(chance.randint(1, 8)))
        yield [whole[start:end] for start, end in pairwise([0, *borders, len(whole)])]


def is_text(raw: bytes) -> bool:
    """Whether these are whole characters."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def problem(vector: Vector, outcome: Outcome) -> str | None:
    """Why the outcome is none of those that the vector takes; None where it is one."""
    expected = vector["expect"]
    others = [{**expected, **other} for other in vector.get("accept", []) if not other.get("error")]
    problems = [_difference(vector.get("compare", {}), one, outcome) for one in (expected, *others)]
    return None if None in problems else problems[0]


def _difference(compare: Mapping[str, str], expected: Outcome, outcome: Outcome) -> str | None:
    for key in ("content", "reasoning"):
        how = compare.get(key, "strip")
        if _compared(outcome[key], how) != _compared(expected.get(key, ""), how):
            return f"{key}: {outcome[key]!r}, expected {expected.get(key, '')!r}"
    for key in ("finish_reason", "stop_sequence"):
        if key in expected and key in outcome and outcome[key] != expected[key]:
            return f"{key}: {outcome[key]!r}, expected {expected[key]!r}"
    if not _same_calls(outcome["tool_calls"], expected["tool_calls"]):
        return f"calls: {outcome['tool_calls']!r}, expected {expected['tool_calls']!r}"
    return None


def _compared(text: str, how: str) -> str:
    match how:
        case "exact":
            return text
        case "strip":
            return text.strip()
        case _:
            return "".join(text.split())


def _same_calls(calls: Sequence[Mapping[str, str]], expected: Sequence[Mapping[str, Any]]) -> bool:
    return len(calls) == len(expected) and all(
        call["name"] == wanted["name"] and _same_arguments(call["arguments"], wanted)
        for call, wanted in zip(calls, expected, strict=True)
    )


def _same_arguments(arguments: str, wanted: Mapping[str, Any]) -> bool:
    if "arguments_raw" in wanted:
        return arguments == wanted["arguments_raw"]
    return _same_json(json.loads(arguments), wanted["arguments"])


def _same_json(one: object, other: object) -> bool:
    """Numbers by value; true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same_json(*pair) for pair in zip(one, other, strict=True))
    return one == other
