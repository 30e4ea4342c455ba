"""What vLLM generates by itself, greedily, one prompt at a time. Reads its order as JSON, prints tokens as JSON."""

import json
import os
import sys

os.environ.update(VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
os.environ.update(OMP_NUM_THREADS="1", VLLM_NO_USAGE_STATS="1")

from vllm import LLM, SamplingParams

asked = json.load(sys.stdin)
alone = LLM(
    asked["model"],
    dtype="float32",
    block_size=32,
    kv_cache_memory_bytes=2**28,
    max_model_len=2048,
    enforce_eager=True,  # the other way compiles for a minute
)
params = SamplingParams(temperature=0, max_tokens=asked["most"])
answers = [alone.generate({"prompt_token_ids": tokens}, params, use_tqdm=False) for tokens in asked["prompts"]]
print(json.dumps([list(answer[0].outputs[0].token_ids) for answer in answers]))
