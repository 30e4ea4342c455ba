"""What a runner makes of a vector's tokens."""

import json
from collections.abc import Sequence

from exo.api.openai.requests import ChatCompletionRequest
from exo.domain.ids import TaskId
from exo.domain.messages.chunks import EndPiece, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.messages.tasks import GenerateTask
from exo.runner.engines.base import TokenOutput
from exo.runner.engines.script import Script
from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from exo.runner.generation import Generation
from exo.runner.output.opening import open_pipeline
from tests.vector_cases import Outcome, Vector

TASK = TaskId("0123456789abcdef0123456789abcdef")


def generation_of(vector: Vector, tokenizer: ScriptedTokenizer) -> Generation:
    """A generation as a runner has it, for what a client asked."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": vector.get("tools"),
        "stop": vector.get("stop"),
    }
    request = ChatCompletionRequest.model_validate_json(json.dumps(body)).to_domain()
    script = Script.model_validate({"tokens": [], "format": vector["format"], "think": vector.get("think")})
    pipeline = open_pipeline(script.output_format(), tokenizer, request)
    return Generation(GenerateTask(task_id=TASK, processes=("p",), reply_to="a"), pipeline, 1, 0.0)


def run(vector: Vector, tokens: Sequence[bytes]) -> list[Piece]:
    """The chunks of a generation that consists of these tokens."""
    tokenizer = ScriptedTokenizer()
    generation = generation_of(vector, tokenizer)
    outputs = [TokenOutput(TASK, tokenizer.token(list(token))) for token in tokens]
    if vector["finish"] == "length":
        outputs[-1] = TokenOutput(TASK, outputs[-1].token, "length")
    else:
        outputs.append(TokenOutput(TASK, END_TOKEN, "stop"))
    chunks: list[Piece] = []
    for output in outputs:
        chunks += generation.take_token(output)
        if isinstance(chunks[-1] if chunks else None, EndPiece):
            return chunks
    raise AssertionError("the generation did not end")


def outcome(chunks: Sequence[Piece]) -> Outcome:
    """What a client has of these chunks in the end."""
    end = chunks[-1]
    assert isinstance(end, EndPiece)
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallPiece)]
    assert [call.index for call in calls] == list(range(len(calls)))
    assert len({call.id for call in calls}) == len(calls)
    return {
        "content": "".join(chunk.text for chunk in chunks if isinstance(chunk, TextPiece)),
        "reasoning": "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningPiece)),
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in calls],
        "finish_reason": end.finish_reason,
        "stop_sequence": end.stop_sequence,
    }
