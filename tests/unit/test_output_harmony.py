"""Harmony from gpt-oss' real tokens, read by OpenAI's parser without a network."""

import base64
import gzip
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from exo.runner.detokenizers import StreamDetokenizer
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.text import MARKERS, HarmonyText
from exo.runner.output.harmony.tokens import HarmonyTokens
from exo.runner.output.harmony.vocabulary import OpenParser, harmony_parsers
from exo.runner.output.pipeline import OutputPipeline
from exo.runner.output.segments import Call, Reasoning, Segment, Text
from exo.runner.output.source import TokenSource
from exo.runner.output.tools.calls import ToolSchemas
from tests.pipelines import joined
from tests.vector_cases import Vector, problem, vectors

FIRST_ADDED = 199998
ADDED = {200002: "<|return|>", 200003: "<|constrain|>", 200005: "<|channel|>", 200006: "<|start|>"} | {
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
}
CHANNEL, START, END, MESSAGE, CALL, RETURN = 200005, 200006, 200007, 200008, 200012, 200002


def spelled(raw: bytes) -> str:
    """A token's bytes as byte-level BPE spells them, by way of a tokenizer."""
    return "".join(_SPELLING[byte] for byte in raw)


def _spelling() -> Mapping[int, str]:
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + place) for place, byte in enumerate(unseen)}


_SPELLING = _spelling()


@pytest.fixture(scope="module")
def vocabulary() -> Mapping[str, int]:
    """What gpt-oss' tokenizer.json has."""
    packed = Path(str(distribution("bpe-openai").locate_file("bpe_openai/data/o200k_base.tiktoken.gz")))
    lines = (line.split() for line in gzip.decompress(packed.read_bytes()).splitlines())
    return {spelled(base64.b64decode(token)): int(number) for token, number in lines}


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Mapping[str, int]) -> Tokenizer:
    fast = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=[]))
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([ADDED.get(number, f"<|reserved_{number}|>") for number in range(FIRST_ADDED, CALL + 1)])
    return fast


@pytest.fixture(scope="module")
def parsers(vocabulary: Mapping[str, int]) -> OpenParser:
    found = harmony_parsers(vocabulary)
    assert found is not None
    return found


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    return StreamDetokenizer(tokenizer, {number: text for number, text in ADDED.items() if text in MARKERS})


def run(source: TokenSource, tokens: Sequence[int], finish: str = "stop") -> tuple[list[Segment], str | None]:
    """The segments, neighbours of one kind joined, and the finish reason. An end token of the model carries the end."""
    pipeline = OutputPipeline(source)
    segments: list[Segment] = []
    reason: str | None = None
    for place, token in enumerate(tokens):
        is_last = place == len(tokens) - 1
        ending = "stop" if finish == "stop" else "length"
        result = pipeline.push(token, ending if is_last else None)
        segments += result.segments
        reason = result.finished
    return joined(segments), reason


WITH_TOKENS = [vector for vector in vectors() if "token_ids" in vector]


@pytest.mark.parametrize("vector", WITH_TOKENS, ids=lambda vector: vector["id"])
def test_a_vector_comes_out_right_by_its_tokens(parsers: OpenParser, tokenizer: Tokenizer, vector: Vector) -> None:
    schemas = ToolSchemas(
        {tool["function"]["name"]: tool["function"]["parameters"] for tool in vector.get("tools", [])}
    )
    source = HarmonyTokens(parsers(), detokenizer(tokenizer), schemas)
    tokens = vector["token_ids"]
    if vector["finish"] == "stop" and tokens[-1] not in (CALL, RETURN):
        tokens = [*tokens, FIRST_ADDED + 1]
    segments, reason = run(source, tokens, vector["finish"])
    outcome = {
        "content": "".join(segment.text for segment in segments if isinstance(segment, Text)),
        "reasoning": "".join(segment.text for segment in segments if isinstance(segment, Reasoning)),
        "tool_calls": [{"name": one.name, "arguments": one.arguments} for one in segments if isinstance(one, Call)],
        "finish_reason": reason,
    }
    assert problem(vector, outcome) is None


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text by ordinary tokens of one byte each."""
    return [tokenizer.token_to_id(_SPELLING[byte]) for byte in text.encode()]


def test_a_text_that_looks_like_a_marker_is_text(parsers: OpenParser, tokenizer: Tokenizer) -> None:
    source = HarmonyTokens(parsers(), detokenizer(tokenizer), ToolSchemas())
    text = "<|end|> ends a message, <|call|> a call."
    tokens = [CHANNEL, *encode(tokenizer, "final"), MESSAGE, *encode(tokenizer, text), RETURN]
    assert run(source, tokens) == ([Text(text)], "stop")


THOUGHT = [Reasoning("hm"), Text("Hi")]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (
            ["analysis", MESSAGE, "hm", START, "assistant", CHANNEL, "final", MESSAGE, "Hi"],
            [Reasoning("hm"), Text("Hi")],
        ),
        (["analysis", MESSAGE, "hm", CHANNEL, "final", MESSAGE, "Hi"], [Reasoning("hm"), Text("Hi")]),
        (["analysis", MESSAGE, "hm", END, "Hi"], [Reasoning("hm"), Text("Hi")]),
        (["final", MESSAGE, "Hi", END, END, "there"], [Text("Hithere")]),
    ],
)
@pytest.mark.parametrize("by_tokens", [True, False])
def test_what_departs_from_the_book_is_read_all_the_same(
    parsers: OpenParser, tokenizer: Tokenizer, tokens: list[int | str], expected: list[Segment], by_tokens: bool
) -> None:
    numbers = [CHANNEL]
    for token in tokens:
        numbers += [token] if isinstance(token, int) else encode(tokenizer, token)
    if by_tokens:
        assert run(HarmonyTokens(parsers(), detokenizer(tokenizer), ToolSchemas()), [*numbers, RETURN])[0] == expected
        return
    reader = HarmonyText(ToolSchemas())
    shown = detokenizer(tokenizer)
    segments = [segment for number in numbers for segment in reader.push(shown.push(number))]
    assert list(joined([*segments, *reader.end(by_itself=True)])) == expected


@pytest.mark.parametrize("text", ["Hello there.", "word " * 100])
def test_an_answer_without_harmony_is_an_answer(parsers: OpenParser, tokenizer: Tokenizer, text: str) -> None:
    source = HarmonyTokens(parsers(), detokenizer(tokenizer), ToolSchemas())
    assert run(source, [*encode(tokenizer, text), RETURN]) == ([Text(text)], "stop")


def test_another_vocabulary_is_read_as_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert harmony_parsers({"a": 0, "b": 1}) is None
    assert "read as text" in caplog.text
