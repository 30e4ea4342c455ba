"""vLLM's schedulers, kept to blocks that have memory: classes for its option `scheduler_cls`."""

from collections.abc import Callable
from itertools import chain, islice
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from exo.runner.engines.vllm.cache.policy import FEWEST


class GrowingScheduler(Scheduler):
    """Blocks are numbered up to the limit, and those from `granted` on are not among its free ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # as vLLM's own: what they are is its business
        super().__init__(*args, **kwargs)
        self._pool = self.kv_cache_manager.block_pool
        self._free = self._pool.free_block_queue
        self.granted = len(self._pool.blocks)
        self.take_back(FEWEST)

    @property
    def limit(self) -> int:
        """The most blocks that it can be granted."""
        return len(self._pool.blocks)

    @property
    def block_bytes(self) -> int:
        """Of a block on one rank, in all layers."""
        return self.kv_cache_config.kv_cache_tensors[0].size // self.limit

    @property
    def held(self) -> int:
        """All blocks from this one on are free."""
        return self._end_of(lambda block: block.ref_cnt > 0 or block.is_null)

    @property
    def used(self) -> int:
        """All blocks from this one on are free, and keep nothing either."""
        return self._end_of(lambda block: block.ref_cnt > 0 or block.is_null or block.block_hash is not None)

    @property
    def stuck(self) -> Request | None:
        """The request that waits at the head while nothing runs."""
        return self.waiting.peek_request() if self.waiting and not self.running else None

    def size_of(self, request: Request) -> int:
        """Bytes of all keys and values that a request needs to go on, on one rank."""
        return self._missing(self.kv_cache_manager.empty_kv_cache_blocks, request.num_tokens) * self.block_bytes

    def grant(self, blocks: int) -> None:
        """Adds blocks, which have memory by now, to the free ones: before all that keep something."""
        self._free.prepend_n(self._pool.blocks[self.granted : self.granted + blocks])
        self.granted += blocks

    def take_back(self, end: int) -> None:
        """Leaves the blocks up to `end`; those behind it are free. What they keep is forgotten."""
        taken = self._pool.blocks[end : self.granted]
        self._pool.evict_blocks({block.block_id for block in taken})
        for block in taken:
            self._free.remove(block)
        self.granted = end

    def blocks_short(self) -> int:
        """How many blocks the next step lacks to compute as much as it otherwise could, without giving up anything that
        is kept."""
        needed = self._needed()
        return needed - self._empty(needed)

    def _needed(self) -> int:
        """New blocks for the next step. A prompt that begins gets all of its own: vLLM asks whether they are free."""
        tokens, blocks = self.max_num_scheduled_tokens, 0
        for request in self.running:
            behind = request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens
            new = min(behind, tokens)
            tokens -= new
            has = self.kv_cache_manager.get_blocks(request.request_id)
            blocks += self._missing(has, request.num_computed_tokens + new)
        places = self.max_num_running_reqs - len(self.running)
        for request in islice(chain(self.kv_holding_waiting, self.waiting), places):
            if tokens <= 0:
                break
            has, computed = self._found(request)
            tokens -= request.num_tokens - computed
            blocks += self._missing(has, request.num_tokens)
        return blocks

    def _found(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """The blocks that a waiting request has, or will be given of what is kept, and how many tokens they hold."""
        if request.num_computed_tokens > 0:
            return self.kv_cache_manager.get_blocks(request.request_id), request.num_computed_tokens
        blocks, computed, _ = self.kv_cache_manager.get_computed_blocks(request)
        return blocks, computed

    def _missing(self, has: KVCacheBlocks, tokens: int) -> int:
        """Blocks for a request's first `tokens`, and those it looks ahead, that it lacks; of all kinds of layers."""
        kinds = zip(self.kv_cache_manager.coordinator.single_type_managers, has.blocks, strict=True)
        return sum(
            max(0, -(-(tokens + self.num_lookahead_tokens) // kind.block_size) - len(blocks)) for kind, blocks in kinds
        )

    def _empty(self, most: int) -> int:
        """Free blocks that keep nothing, which are the first in the queue, counted up to `most`."""
        count, block = 0, self._free.fake_free_list_head.next_free_block
        while count < most and block is not None and block.block_id >= 0 and block.block_hash is None:
            count, block = count + 1, block.next_free_block
        return count

    def _end_of(self, stays: Callable[[KVCacheBlock], bool]) -> int:
        return next((b.block_id + 1 for b in reversed(self._pool.blocks[: self.granted]) if stays(b)), 1)


class GrowingAsyncScheduler(GrowingScheduler, AsyncScheduler):
    """The one that plans a step while the GPU computes the one before."""
