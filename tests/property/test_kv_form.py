"""A state in the form of no engine is whole when its pieces are, however it was cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.errors import Retryable
from exo.runner.kv.assembling import assembled
from exo.runner.kv.form import ArraysState, AttentionState, Piece, WindowState
from tests.kv_states import cut, described, numbers, prompt_states


def attention(tokens: int, heads: int = 2) -> AttentionState:
    return AttentionState(numbers((tokens, heads, 4)), numbers((tokens, heads, 4)))


@given(st.data())
def test_the_pieces_of_a_state_make_it_again(data: st.DataObject) -> None:
    state = data.draw(prompt_states())
    pieces = data.draw(cut(state))
    assert described(assembled(pieces, state.tokens)) == described(state)


@given(st.data())
def test_without_one_of_its_pieces_it_is_refused(data: st.DataObject) -> None:
    state = data.draw(prompt_states())
    pieces = data.draw(cut(state))
    del pieces[data.draw(st.integers(0, len(pieces) - 1))]
    # Of a state without its last layer only the model can tell that it had one more.
    if {piece.layer for piece in pieces} == set(range(len(state.layers))):
        with pytest.raises(Retryable):
            assembled(pieces, state.tokens)


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([Piece(1, attention(8))], "layer 0 is missing of 2"),
        ([Piece(0, attention(7))], "layer 0 has come up to token 7, and the state is of 8"),
        ([Piece(0, attention(4)), Piece(0, attention(4), 3)], "goes on with token 3, and 4 is its next one"),
        ([Piece(0, attention(4)), Piece(0, attention(4, heads=3), 4)], "began with"),
        ([Piece(0, AttentionState(numbers((8, 1, 2)), numbers((7, 1, 2))))], "keys of 8 tokens and values of 7"),
        ([Piece(0, AttentionState(numbers((8, 2)), numbers((8, 2))))], "keys of 2 axes, not of 3"),
        ([Piece(0, ArraysState(())), Piece(0, ArraysState(()))], "layer 0 came twice"),
        ([Piece(0, ArraysState(())), Piece(0, attention(8))], "with attention and as another kind"),
        ([Piece(0, WindowState(numbers((4, 1, 2)), numbers((4, 1, 2)), 3, 4))], "up to token 7, and the state is of 8"),
        ([], "no layer came"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_both_numbers(pieces: list[Piece], reason: str) -> None:
    with pytest.raises(Retryable, match=reason):
        assembled(pieces, 8)
