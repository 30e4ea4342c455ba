"""Tokens become the text that they spell, however its characters are cut over them, and no tokens are an error."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from exo.runner.detokenizers import ByteFallbackDetokenizer, StreamDetokenizer, byte_tokens
from exo.runner.output.detokenize import Detokenizer

TEXT = st.text(alphabet="ab é☂🚀\n", max_size=12)
PIECES = (b" \xf0\x9f", b"\x9a\x80", b"\xe2\x98", b"\x82a", b"ab", b" a")
"""Of a byte-level vocabulary, beside the bytes: with characters that are cut."""
WORDS = ("▁", "▁a", "ab", "a", "b", "é", "\ufffd")
"""Of a vocabulary with byte fallback, beside the bytes."""


def byte_level() -> Tokenizer:
    letters = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
    letters |= {byte: chr(0x100 + place) for place, byte in enumerate(sorted(set(range(256)) - letters.keys()))}
    assert set(letters.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*(bytes([byte]) for byte in range(256)), *PIECES]
    vocabulary = {"".join(letters[byte] for byte in piece): number for number, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.ByteLevel()
    return made


def byte_fallback() -> Tokenizer:
    """As Llama 2's: a text loses the space that it begins with."""
    named = [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {token: number for number, token in enumerate([*named, *WORDS])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


BYTE_LEVEL, BYTE_FALLBACK = byte_level(), byte_fallback()
BYTES = byte_tokens(BYTE_FALLBACK)
SPELLED: Mapping[int, bytes] = {number: bytes([number]) for number in range(256)} | {
    256 + place: word.replace("▁", " ").encode() for place, word in enumerate(WORDS)
}


def fallback() -> Detokenizer:
    return ByteFallbackDetokenizer(BYTE_FALLBACK, BYTES, {})


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[int]:
    """Tokens of the byte-level vocabulary that spell the text, in any of the ways that there are."""
    raw, tokens = text.encode(), list[int]()
    while raw:
        pieces = [(256 + place, piece) for place, piece in enumerate(PIECES) if raw.startswith(piece)]
        token, piece = draw(st.sampled_from([(raw[0], raw[:1]), *pieces]))
        tokens.append(token)
        raw = raw[len(piece) :]
    return tokens


@given(st.data(), TEXT)
def test_a_text_comes_whole_and_each_part_of_it_without_its_cut_character(data: st.DataObject, text: str) -> None:
    detokenizer = StreamDetokenizer(BYTE_LEVEL, {})
    streamed = ""
    for token in data.draw(cut(text)):
        streamed += detokenizer.push(token)
        assert text.startswith(streamed)
    assert streamed == text


@given(st.lists(st.integers(0, 255 + len(PIECES)), max_size=12))
def test_any_tokens_of_a_byte_level_vocabulary_give_the_text_of_all_at_once(tokens: list[int]) -> None:
    detokenizer = StreamDetokenizer(BYTE_LEVEL, {})
    streamed = "".join(map(detokenizer.push, tokens))
    whole = BYTE_LEVEL.decode(tokens)
    assert whole.startswith(streamed)
    assert whole == streamed or whole.endswith("\ufffd")


@given(st.lists(st.sampled_from(list(SPELLED)), max_size=12))
def test_any_tokens_of_a_vocabulary_with_byte_fallback_give_their_bytes_as_text(tokens: list[int]) -> None:
    """Less what is cut at the end, and the space at the beginning."""
    detokenizer = fallback()
    streamed = "".join(map(detokenizer.push, tokens))
    raw = b"".join(SPELLED[token] for token in tokens)
    if tokens and tokens[0] not in BYTES:
        raw = raw.removeprefix(b" ")
    whole = raw.decode(errors="replace")
    assert streamed == whole or (whole.endswith("\ufffd") and streamed == whole[:-1])
    if "\ufffd" not in whole and tokens[:1] != [0x20]:
        assert streamed == BYTE_FALLBACK.decode(tokens)


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        ([0xE2, 0x98, 0x82, 0x41], ["", "", "☂", "A"]),
        ([0x7E, 0xF4, 0x48, 0xCB, 259], ["~", "", "\ufffdH", "", "\ufffda"]),
        ([0xF0, 0x9F], ["", ""]),
        ([257, 257], ["a", " a"]),
        ([0x0A, 257], ["\n", " a"]),
    ],
)
def test_bytes_that_make_no_character_take_nothing_back(tokens: list[int], pieces: list[str]) -> None:
    detokenizer = fallback()
    assert [detokenizer.push(token) for token in tokens] == pieces


def test_a_text_that_goes_on_keeps_its_space() -> None:
    assert ByteFallbackDetokenizer(BYTE_FALLBACK, BYTES, {}, is_first=False).push(257) == " a"


def test_only_byte_fallback_has_tokens_that_are_named_for_their_bytes() -> None:
    assert len(BYTES) == 256
    assert byte_tokens(BYTE_LEVEL) == {}
