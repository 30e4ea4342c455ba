"""Pieces of one generation that go out together, in as few as say the same."""

from collections.abc import Iterable

from exo.domain.messages.chunks import Piece, PrefillPiece, ReasoningPiece, TextPiece


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The same output with neighbours of one kind as one: texts, thoughts, and of how far the prompt is the last word.

    Text with logprobs stays as it is, since these are told of with the text that they belong to.
    """
    found: list[Piece] = []
    for piece in pieces:
        both = _both(found[-1], piece) if found else None
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return found


def _both(first: Piece, second: Piece) -> Piece | None:
    match first, second:
        case TextPiece(logprobs=()), TextPiece(logprobs=()):
            return TextPiece(text=first.text + second.text)
        case ReasoningPiece(), ReasoningPiece():
            return ReasoningPiece(text=first.text + second.text)
        case PrefillPiece(), PrefillPiece():
            return second
        case _:
            return None
