"""A state goes over a stream of bytes, however that is cut, and nothing else than a state does any harm."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.errors import Retryable
from exo.runner.kv.assembling import Assembly
from exo.runner.kv.form import AttentionState, Piece, PromptState
from exo.runner.kv.wire import HEADER_MOST, PIECE_MOST, End, Failure, Frame, Waiting, read_frame, written
from tests.kv_states import cut, described, numbers, prompt_states

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Bytes:
    """A stream that is all there, and how much of it was asked for at most."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked_most = 0

    async def read(self, count: int) -> bytes:
        self.asked_most = max(self.asked_most, count)
        if count > len(self.data):
            raise Retryable("cut off")
        found, self.data = self.data[:count], self.data[count:]
        return found


def stream_of(frames: Sequence[Frame]) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in written(frame))


async def received(stream: Bytes) -> PromptState | Failure:
    assembly = Assembly()
    while True:
        match await read_frame(stream.read):
            case Piece() as piece:
                assembly.take(piece)
            case End(tokens):
                return assembly.finished(tokens)
            case Failure() as failure:
                return failure
            case Waiting():
                pass


@given(st.data())
def test_a_state_comes_out_as_it_went_in(data: st.DataObject) -> None:
    state = data.draw(prompt_states())
    stream = Bytes(stream_of([*data.draw(cut(state)), End(state.tokens)]))
    found = run(received(stream))
    assert isinstance(found, PromptState)
    assert described(found) == described(state)
    assert stream.data == b""


@given(st.data())
def test_a_stream_that_is_cut_off_is_an_error(data: st.DataObject) -> None:
    state = data.draw(prompt_states())
    whole = stream_of([*data.draw(cut(state)), End(state.tokens)])
    with pytest.raises(Retryable):
        run(received(Bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])))


@given(st.data())
def test_bytes_that_changed_on_the_way_are_an_error_or_a_state_of_the_same_form(data: st.DataObject) -> None:
    state = data.draw(prompt_states())
    whole = bytearray(stream_of([*data.draw(cut(state)), End(state.tokens)]))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    stream = Bytes(bytes(whole))
    try:
        found = run(received(stream))
    except Retryable:
        return
    assert isinstance(found, PromptState)
    assert stream.data == b""


@given(st.binary(max_size=200))
def test_a_foreign_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(Retryable):
        run(received(Bytes(data)))


@given(st.binary(max_size=100))
def test_a_header_that_is_none_is_an_error(header: bytes) -> None:
    with pytest.raises(Retryable):
        run(received(Bytes(len(header).to_bytes(4, "big") + header)))


@pytest.mark.parametrize(
    "header",
    [
        b'{"type": "attention", "layer": 0, "arrays": [{"dtype": "float32", "shape": [1000000, 1000, 1000]}]}',
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "float32", "shape": [1099511627776]}, null]}',
        b'{"type": "arrays", "layer": 10000, "arrays": []}',
        b'{"type": "arrays", "layer": 0, "arrays": [' + b",".join([b"null"] * 17) + b"]}",
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "float32", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1]}]}',
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "object", "shape": [1]}]}',
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "float32", "shape": [-1]}]}',
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "float32", "shape": [0, 1' + b"0" * 30 + b"]}]}",
        b'{"type": "arrays", "layer": 0, "arrays": [{"dtype": "float32", "shape": [0' + b", 2147483647" * 3 + b"]}]}",
        b'{"type": "window", "layer": 0, "arrays": [null, null]}',
        b'{"type": "end", "tokens": -1}',
        b'{"type": "other"}',
    ],
)
def test_a_header_that_claims_what_cannot_be_is_refused_before_any_of_it_is_waited_for(header: bytes) -> None:
    stream = Bytes(len(header).to_bytes(4, "big") + header + bytes(1000))
    with pytest.raises(Retryable):
        run(received(stream))
    assert stream.asked_most <= len(header)


def test_a_header_that_is_too_long_is_refused_with_both_numbers() -> None:
    stream = Bytes((HEADER_MOST + 1).to_bytes(4, "big") + bytes(2 * HEADER_MOST))
    with pytest.raises(Retryable, match=f"{HEADER_MOST + 1} bytes, and {HEADER_MOST}"):
        run(received(stream))


def test_a_piece_that_is_too_large_is_refused_with_both_numbers() -> None:
    header = b'{"type": "arrays", "layer": 3, "arrays": [{"dtype": "bfloat16", "shape": [1073741824]}]}'
    with pytest.raises(Retryable, match=f"layer 3 claims 2147483648 bytes, and {PIECE_MOST}"):
        run(received(Bytes(len(header).to_bytes(4, "big") + header)))


def test_a_failure_says_why_as_long_as_that_is_short() -> None:
    assert run(received(Bytes(stream_of([Failure("no memory")])))) == Failure("no memory")
    assert run(received(Bytes(stream_of([Failure("x" * 5000)])))) == Failure("x" * 1000)


def test_arrays_that_lie_scattered_in_memory_are_sent_in_their_order() -> None:
    whole = numbers((4, 3, 2))
    turned = type(whole)("float32", whole.raw.transpose(1, 0, 2))
    found = run(received(Bytes(stream_of([Piece(0, AttentionState(turned, turned)), End(3)]))))
    assert isinstance(found, PromptState)
    assert described(found) == described(PromptState(3, (AttentionState(turned, turned),)))
