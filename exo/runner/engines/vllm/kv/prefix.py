"""How much of a prompt vLLM's prefix cache holds."""

from collections.abc import Callable, Sequence

from vllm import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request


def held_by(manager: KVCacheManager, block_tokens: int, hash_name: str) -> Callable[[Sequence[int]], int]:
    """Counts a prompt's first tokens that need not be computed: whole blocks, and never the last token.

    The prompt is hashed, by blocks of `block_tokens`, and looked up as vLLM does when it schedules a request. Nothing
    is taken.
    """
    hashes = get_request_block_hasher(block_tokens, get_hash_fn_by_name(hash_name))

    def held(prompt: Sequence[int]) -> int:
        if not prompt:
            return 0
        asked = Request("held", list(prompt), SamplingParams(max_tokens=1), None, block_hasher=hashes)
        return manager.get_computed_blocks(asked)[1]

    return held
