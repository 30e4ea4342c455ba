"""Output of a runner that is behind goes out in fewer pieces, and says the same."""

from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import EndPiece, PrefillPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import Timings, Usage
from exo.runner.joining import joined

CALL = ToolCallPiece(index=0, id="call_0", name="f", arguments="{}")
END = EndPiece(finish_reason="stop", usage=Usage(), timings=Timings())
TOKEN = TokenLogprobs(token="b", logprob=-0.5, bytes=(98,), top_logprobs=())


def test_neighbours_of_one_kind_become_one() -> None:
    pieces = [
        *(PrefillPiece(done=done, total=9) for done in (3, 6)),
        *(ReasoningPiece(text=text) for text in ("let me ", "think")),
        *(TextPiece(text=text) for text in ("a", "b", "c")),
        CALL,
        TextPiece(text="d"),
        END,
    ]
    assert joined(pieces) == [
        PrefillPiece(done=6, total=9),
        ReasoningPiece(text="let me think"),
        TextPiece(text="abc"),
        CALL,
        TextPiece(text="d"),
        END,
    ]


def test_text_with_logprobs_keeps_them_to_itself() -> None:
    pieces = [TextPiece(text="a"), TextPiece(text="b", logprobs=(TOKEN,)), TextPiece(text="c")]
    assert joined(pieces) == pieces


def test_calls_stay_apart() -> None:
    assert joined([CALL, CALL]) == [CALL, CALL]
    assert joined([]) == []
