"""A vLLM engine made and asked: what is the same for models that write and for those that make vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from vllm import EngineArgs, LLMEngine, PoolingParams, SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input

from exo.domain.limits import SLOTS
from exo.domain.model_card import ModelCard
from exo.errors import Fatal, Rejected, one_line
from exo.runner.engines.base import Progress
from exo.runner.engines.vllm.cache import policy
from exo.runner.engines.vllm.loading import FORMAT, TOLD_FILE, told
from exo.runner.engines.vllm.memory import UTILIZATION_LEAST
from exo.runner.engines.vllm.step_tokens import most_step_tokens


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """What keys and values may have at most, on one rank."""

    count: int
    bytes: int
    """Of a block."""


def made(
    card: ModelCard, own: EngineArgs, blocks: CacheBlocks, on_progress: Progress, *, is_local: bool = True
) -> LLMEngine:
    """An engine that holds the model. `own`: vLLM's arguments that not all models have; `is_local`: whether all of it
    is on this machine.

    Raises Fatal where vLLM cannot load it.
    """
    try:
        with told(card.layers, on_progress) as file:
            arguments = replace(
                own,
                dtype="float32" if card.quantization == "float32" else "auto",
                max_model_len=min(card.context, (blocks.count - 1) * policy.BLOCK),  # vLLM keeps a block for itself
                max_num_seqs=SLOTS,
                max_num_batched_tokens=most_step_tokens(),
                kv_cache_memory_bytes=blocks.count * blocks.bytes,
                gpu_memory_utilization=UTILIZATION_LEAST,
                block_size=policy.BLOCK,
                load_format=FORMAT if is_local else "auto",  # no file of this machine reaches others
                model_loader_extra_config={TOLD_FILE: str(file)} if is_local else {},
                disable_log_stats=True,
                enforce_eager=not torch.cuda.is_available(),  # on a CPU vLLM would compile for a minute, by a compiler
            )
            return LLMEngine.from_engine_args(arguments)
    except Exception as error:  # of any kind: it computes with what the files say
        raise Fatal(f"vLLM cannot load {card.model_id}: {one_line(error)}") from error


def add_request(
    engine: LLMEngine,
    request_id: str,
    tokens: Sequence[int],
    params: SamplingParams | PoolingParams,
    param: str | None = None,
) -> str:
    """Queues tokens; vLLM's own id of the request. `param`: what they are in the API.

    Raises Rejected where vLLM refuses them.
    """
    try:
        return engine.add_request(request_id, tokens_input(list(tokens)), params)
    except (VLLMClientError, ValueError, TypeError, OverflowError) as error:
        raise Rejected(f"vLLM refuses {param or 'the request'}: {one_line(error)}", param=param) from error
