"""A generation's answer put together from its pieces, for whoever asked for it in one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exo.api.errors import failure
from exo.api.generation import Generation, Item
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece


@dataclass(slots=True)
class Answer:
    """What has come so far."""

    texts: list[str] = field(default_factory=list[str])
    reasonings: list[str] = field(default_factory=list[str])
    calls: list[ToolCallPiece] = field(default_factory=list[ToolCallPiece])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])

    def add(self, item: Item) -> None:
        """Take one more piece."""
        match item:
            case TextPiece():
                self.texts.append(item.text)
                self.logprobs.extend(item.logprobs)
            case ReasoningPiece():
                self.reasonings.append(item.text)
            case ToolCallPiece():
                self.calls.append(item)
            case _:
                pass

    def message(self) -> dict[str, object]:
        """The message. Its content is null where there are calls and no text."""
        text, reasoning = "".join(self.texts), "".join(self.reasonings)
        message: dict[str, object] = {"role": "assistant", "content": text if text or not self.calls else None}
        if reasoning:
            message |= reasoning_of(reasoning)
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return message


def reasoning_of(text: str) -> dict[str, object]:
    """Under both names: DeepSeek's, which most clients read, and the one that vLLM and OpenRouter have."""
    return {"reasoning_content": text, "reasoning": text}


def logprobs_of(logprobs: Sequence[TokenLogprobs]) -> dict[str, object]:
    """What is told of the answer's tokens. A TokenLogprobs has OpenAI's names already."""
    return {"content": logprobs, "refusal": None}


async def whole_answer(generation: Generation) -> tuple[Answer, EndPiece]:
    """All of it, and the end. Raises GenerationFailed where the end is an error."""
    answer = Answer()
    while True:
        for item in await generation.items():
            if isinstance(item, EndPiece):
                if problem := failure(item):
                    raise problem
                return answer, item
            answer.add(item)
