"""Streamed text is the whole text cut at the first stop sequence, however the stream is cut into tokens."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from tests.pipelines import pipeline_of, text_of

STOP_LISTS = (["ab"], ["aab", "ba"], ["abab"], ["abb", "bb", "b" * 4], ["aba", "bab", "aabb"], ["a"])

few_letters = st.text(alphabet="ab", max_size=4)
letters = st.text(alphabet="ab🚀é\n", max_size=24)


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By definition: read a character at a time until what was read ends in a stop; of several, the longest."""
    for end in range(len(text) + 1):
        hits = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


def streamed(pieces: list[bytes], stops: list[str]) -> tuple[str, str | None]:
    """The text and the stop sequence that a client sees."""
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, stops)
    text = ""
    for token in [*(tokenizer.token(piece) for piece in pieces), END_TOKEN]:
        result = pipeline.push(token, "stop" if token == END_TOKEN else None)
        text += text_of(result)
        assert not any(stop and stop in text for stop in stops)
        if result.finished:
            return text, result.stop_sequence
    raise AssertionError("the pipeline did not finish")


def cuts(raw: bytes, borders: list[int]) -> list[bytes]:
    edges = [0, *sorted(borders), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


def test_every_way_of_cutting_every_short_text() -> None:
    for stops in STOP_LISTS:
        for text in map("".join, product("ab", repeat=6)):
            expected = cut_at_first_stop(text, stops)
            for chosen in product((False, True), repeat=len(text) - 1):
                borders = [position for position, border in enumerate(chosen, 1) if border]
                assert streamed(cuts(text.encode(), borders), stops) == expected, (text, stops, borders)


@given(st.data(), letters, st.lists(letters.filter(lambda stop: len(stop) <= 6), max_size=4))
def test_any_bytes_cut_anywhere(data: st.DataObject, text: str, stops: list[str]) -> None:
    raw = text.encode()
    borders = data.draw(st.lists(st.integers(0, len(raw)), max_size=len(raw)))
    assert streamed(cuts(raw, borders), stops) == cut_at_first_stop(text, stops)


@given(st.data(), few_letters, st.lists(few_letters, min_size=1, max_size=3))
def test_text_that_contains_a_stop_is_cut_there(data: st.DataObject, before: str, stops: list[str]) -> None:
    text = before + data.draw(st.sampled_from(stops)) + data.draw(few_letters)
    raw = text.encode()
    borders = data.draw(st.lists(st.integers(0, len(raw)), max_size=len(raw)))
    assert streamed(cuts(raw, borders), stops) == cut_at_first_stop(text, stops)
