"""vLLM's `LLMEngine` by itself in one process, taking orders (`bench.orders`): the yardstick for everything around it.

It is set as exo's engine sets it, but for what that adds.
"""

import sys
from collections.abc import Iterator
from itertools import count

from bench.contenders import VLLM_CACHE_BYTES
from bench.orders import take_orders
from exo.domain.limits import SLOTS
from exo.runner.engines.vllm.environment import prepare_environment


def main() -> None:
    """Load the model and answer until standard input ends."""
    prepare_environment(1)
    import torch
    from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind

    from exo.runner.engines.vllm.memory import UTILIZATION_LEAST

    arguments = EngineArgs(
        model=sys.argv[1],
        dtype="float32",
        max_num_seqs=SLOTS,
        kv_cache_memory_bytes=VLLM_CACHE_BYTES,
        gpu_memory_utilization=UTILIZATION_LEAST,
        block_size=32,
        disable_log_stats=True,
        enforce_eager=not torch.cuda.is_available(),
    )
    engine, numbers = LLMEngine.from_engine_args(arguments), count()

    def tokens(prompts: list[list[int]], max_tokens: int) -> Iterator[str]:
        params = SamplingParams(
            temperature=0, max_tokens=max_tokens, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        for prompt in prompts:
            engine.add_request(str(next(numbers)), tokens_input(prompt), params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if isinstance(output, RequestOutput):
                    yield from (output.request_id for _ in output.outputs[0].token_ids)

    take_orders(tokens)


if __name__ == "__main__":
    main()
