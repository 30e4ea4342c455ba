"""The layers of a loaded model whose keys and values can be exchanged, or why they cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVQuantMode

from exo.runner.engines.vllm.kv.fit import StateShape
from exo.runner.engines.vllm.kv.layout import BlockLayout, found_layout
from exo.runner.engines.vllm.kv.numbers import NAMES


class _Attention(Protocol):
    """A layer of vLLM's, of which only this is needed."""

    impl: object


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, its cache [blocks, heads, tokens of a block, ...], and where a block has what."""

    index: int
    cache: torch.Tensor
    layout: BlockLayout


@dataclass(frozen=True, slots=True)
class Layers:
    """All of a model, in their order, by vLLM's names."""

    shape: StateShape
    block_tokens: int
    """Of a block, as the scheduler has them: an attention backend may divide them further."""
    by_name: Mapping[str, Layer]


def exchangeable(config: VllmConfig, kept: KVCacheConfig, caches: Mapping[str, torch.Tensor]) -> Layers | str:
    """The layers, or why states of them are not exchanged. It writes into the blocks that vLLM keeps for itself."""
    spec = _plain_attention(kept)
    if isinstance(spec, str):
        return spec
    modules = cast(Mapping[str, _Attention], config.compilation_config.static_forward_context)
    layouts = _Layouts(spec)
    found: dict[str, Layer] = {}
    for index, name in enumerate(sorted(kept.kv_cache_groups[0].layer_names, key=extract_layer_index)):
        layout = layouts.of(modules[name], caches[name])
        if layout is None:
            return f"vLLM's {type(modules[name].impl).__name__} keeps keys and values in a form that is not exchanged"
        found[name] = Layer(index, caches[name], layout)
    shape = StateShape(len(found), spec.num_kv_heads, spec.head_size, NAMES[spec.dtype])
    return Layers(shape, spec.block_size, found)


def _plain_attention(kept: KVCacheConfig) -> FullAttentionSpec | str:
    """What all layers keep, or why it is not exchanged. A window for which vLLM keeps all tokens is attention here."""
    specs = [group.kv_cache_spec for group in kept.kv_cache_groups]
    spec = specs[0] if len(specs) == 1 else None
    if type(spec) is not FullAttentionSpec:
        kinds = ", ".join(sorted({type(one).__name__ for one in specs}))
        return f"vLLM exchanges states of plain attention, and for this model it keeps {kinds}"
    if spec.dtype not in NAMES or spec.kv_quant_mode is not KVQuantMode.NONE:
        return f"vLLM keeps this model's keys and values quantized, as {spec.dtype}"
    if spec.head_size != spec.head_size_v:
        return f"this model's keys have {spec.head_size} numbers a head, and its values {spec.head_size_v}"
    return spec


class _Layouts:
    """Found once for all layers that are alike."""

    def __init__(self, spec: FullAttentionSpec) -> None:
        self._spec = spec
        self._known: dict[object, BlockLayout | None] = {}

    def of(self, module: _Attention, cache: torch.Tensor) -> BlockLayout | None:
        alike = (type(module.impl), cache.shape, cache.stride())
        if alike not in self._known:
            self._known[alike] = self._found(module, cache)
        return self._known[alike]

    def _found(self, module: _Attention, cache: torch.Tensor) -> BlockLayout | None:
        update = getattr(module.impl, "do_kv_cache_update", None)
        if update is None:  # this backend writes while it computes
            return None

        def write(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
            update(module, keys, values, cache, slots)

        return found_layout(cache, self._spec.num_kv_heads, self._spec.head_size, write)
