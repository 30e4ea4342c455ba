"""What vLLM gives, as the runner takes it."""

from collections.abc import Mapping
from dataclasses import replace

from vllm import CompletionOutput, RequestOutput
from vllm.logprobs import Logprob

from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.sampling import FinishReason
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput
from exo.runner.engines.logprobs import BytesOf, told_logprobs

REASONS: Mapping[str | None, FinishReason | None] = {None: None, "stop": "stop", "length": "length"}
"""Of vLLM, as ours. Others are failures."""


def outputs_of(given: RequestOutput, is_first: bool, logprobs: int | None, bytes_of: BytesOf) -> list[EngineOutput]:
    """The new tokens of one request, after its prefill where they are the first. `logprobs`: as the request asked."""
    task_id = TaskId(given.request_id)
    completion = given.outputs[0]
    if completion.finish_reason not in REASONS:
        return [_failed(task_id, completion)]
    reason = REASONS[completion.finish_reason]
    outputs: list[EngineOutput] = []
    if is_first:
        total = len(given.prompt_token_ids or ())
        outputs.append(PrefillOutput(task_id, total, total, cached=given.num_cached_tokens or 0))
    tokens = _tokens(task_id, completion, logprobs, bytes_of)
    if reason is not None and tokens:
        tokens[-1] = replace(tokens[-1], finish_reason=reason)
    return [*outputs, *tokens]


def _tokens(task_id: TaskId, completion: CompletionOutput, count: int | None, bytes_of: BytesOf) -> list[TokenOutput]:
    tokens = completion.token_ids
    told = completion.logprobs if count is not None and completion.logprobs else [None] * len(tokens)
    return [
        TokenOutput(task_id, token, None, None if of_one is None else _logprobs(token, of_one, count or 0, bytes_of))
        for token, of_one in zip(tokens, told, strict=True)
    ]


def _failed(task_id: TaskId, completion: CompletionOutput) -> FailedOutput:
    return FailedOutput(task_id, "engine_error", f"vLLM ended the request: {completion.finish_reason}")


def _logprobs(token: int, given: Mapping[int, Logprob], count: int, bytes_of: BytesOf) -> TokenLogprobs:
    """vLLM gives the likeliest and, where it is not among them, the chosen one."""
    ranked = sorted(given.items(), key=lambda pair: (-pair[1].logprob, pair[0]))[:count]
    return told_logprobs(token, given[token].logprob, [(one, told.logprob) for one, told in ranked], bytes_of)
