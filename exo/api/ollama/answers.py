"""An answer as Ollama's JSON: whole, and the parts of it that streams have too."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic_core import to_json

from exo.api.generations.answer import Answer
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import EndPiece, ToolCallPiece

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Said:
    """Some more of an answer, or all of it."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[ToolCallPiece] = ()
    logprobs: Sequence[TokenLogprobs] = ()


NOTHING = Said()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes what answers one request. No line break is in what it writes. Times are seconds since the epoch."""

    kind: Literal["chat", "generate"]
    model: str
    """As the client calls it."""
    asked_at: float

    def part(self, said: Said, now: float) -> bytes:
        """A part of the answer."""
        return to_json({**self._told(said, now), "done": False})

    def end(self, end: EndPiece, now: float, load_seconds: float, said: Said = NOTHING) -> bytes:
        """What comes last, with all that has not come in parts."""
        reason = "length" if end.finish_reason == "length" else "stop"
        figures = self._figures(end, now, load_seconds)
        return to_json({**self._told(said, now), "done": True, "done_reason": reason, **figures})

    def no_answer(self, done_reason: Literal["load", "unload"], now: float) -> bytes:
        """Where none was asked for."""
        return to_json({**self._told(NOTHING, now), "done": True, "done_reason": done_reason})

    def _told(self, said: Said, now: float) -> dict[str, object]:
        told: dict[str, object] = {"model": self.model, "created_at": timestamp(now)}
        thinking = {"thinking": said.thinking} if said.thinking else {}
        if self.kind == "generate":
            told |= {"response": said.text, **thinking}
        else:
            calls = {"tool_calls": [_call(call) for call in said.calls]} if said.calls else {}
            told["message"] = {"role": "assistant", "content": said.text, **thinking, **calls}
        return {**told, "logprobs": said.logprobs} if said.logprobs else told

    def _figures(self, end: EndPiece, now: float, load_seconds: float) -> dict[str, int]:
        """Nanoseconds and tokens."""
        timings = end.timings
        return {
            "total_duration": nanoseconds(max(0.0, now - self.asked_at)),
            "load_duration": nanoseconds(load_seconds),
            "prompt_eval_count": end.usage.prompt_tokens,
            "prompt_eval_duration": nanoseconds(timings.prefill),
            "eval_count": end.usage.completion_tokens,
            "eval_duration": nanoseconds(timings.decode),
        }


def all_of(answer: Answer) -> Said:
    """An answer that is whole."""
    return Said(answer.text, answer.reasoning, answer.calls, answer.logprobs)


def timestamp(seconds: float) -> str:
    """As RFC 3339 has it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _call(call: ToolCallPiece) -> dict[str, object]:
    function = {"index": call.index, "name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "function": function}


def nanoseconds(seconds: float) -> int:
    """As Ollama tells durations."""
    return round(seconds * NANOSECONDS)
