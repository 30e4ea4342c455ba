"""exo's connector, as vLLM's interface for KV connectors wants it.

vLLM makes two of them, one for its scheduler and one for its model, and both know the engine's `Exchange`. States of
plain attention are taken in before a step computes, and handed out layer by layer while it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.forward_context import ForwardContext
from vllm.v1.attention.backend import AttentionMetadata
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request

from exo.runner.engines.vllm.kv.exchange import CLOSED, Exchange
from exo.runner.engines.vllm.kv.layers import exchangeable
from exo.runner.engines.vllm.kv.prefix import held_by
from exo.runner.engines.vllm.kv.steps import NOTHING, StepPlan, StepSpans
from exo.runner.engines.vllm.kv.transfer import Transfer

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager

EXCHANGE = "exchange"
"""The entry of the connector's configuration that holds the engine's `Exchange`."""


def transfer_config(exchange: Exchange) -> KVTransferConfig:
    """What has vLLM use the connector."""
    return KVTransferConfig(
        kv_connector=ExchangeConnector.__name__,
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_connector_extra_config={EXCHANGE: exchange},
    )


class ExchangeConnector(KVConnectorBase_V1, SupportsHMA):
    """It supports vLLM's hybrid KV cache, and so leaves models with several kinds of layers as they are; states of
    those are not exchanged."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._exchange = cast(Exchange, self._kv_transfer_config.kv_connector_extra_config[EXCHANGE])
        self._plan = StepPlan(self._exchange)
        self._transfer: Transfer | None = None

    @property
    def requires_kv_delivery(self) -> bool:
        """Pieces are handed out in the step that computes them: nothing is pending after it."""
        return False

    # In the scheduler.

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        """What holds blocks and prefixes is made."""
        super().bind_kv_cache_manager(kv_cache_manager)
        config = self._vllm_config.cache_config
        block_tokens = self._kv_cache_config.hash_block_size or config.block_size
        self._exchange.held = held_by(kv_cache_manager, block_tokens, config.prefix_caching_hash_algo)

    def on_new_request(self, request: Request) -> None:
        """A request came in."""
        self._plan.begin(request)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens of a state from elsewhere follow those of the prefix cache; they are loaded within a step."""
        return self._plan.loadable(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """A request has its blocks."""
        self._plan.load(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """What the step that was scheduled takes in and hands out."""
        return self._plan.step(scheduler_output.num_scheduled_tokens, self._blocks_of)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, None]:
        """A request is over; its blocks may be freed."""
        self._plan.end(request)
        return False, None

    def request_finished_all_groups(self, request: Request, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        """As `request_finished`, of several kinds of layers."""
        self._plan.end(request)
        return False, None

    def _blocks_of(self, request_id: str) -> Sequence[int]:
        assert self._kv_cache_manager is not None  # bound before the first request
        return self._kv_cache_manager.get_block_ids(request_id)[0]

    # In the model.

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """The caches of all layers are made."""
        if self._transfer is not None:  # another model in this process, which has to do without
            return
        layers = exchangeable(self._vllm_config, self._kv_cache_config, kv_caches)
        if isinstance(layers, str):
            self._exchange.refusal = layers
            return
        self._transfer = Transfer(self._exchange, layers)
        self._exchange.shape = layers.shape
        self._exchange.refusal = ""

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: object) -> None:
        """Before the layers compute."""
        if self._transfer is not None and self._spans.loads:
            self._transfer.load(self._spans.loads)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded any more."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: object
    ) -> None:
        """A layer has computed."""
        if self._transfer is not None and self._spans.saves:
            self._transfer.save(layer_name, self._spans.saves)

    def wait_for_save(self) -> None:
        """All layers have computed."""
        if self._transfer is not None and self._spans.saves:
            self._transfer.finish(self._spans.saves)

    def shutdown(self) -> None:
        """vLLM lets go of the connector, for all models of this process."""
        self._exchange.shape, self._exchange.refusal = None, CLOSED

    @property
    def _spans(self) -> StepSpans:
        given = self._connector_metadata
        return given if isinstance(given, StepSpans) else NOTHING
