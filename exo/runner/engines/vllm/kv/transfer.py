"""The model's side: from vLLM's blocks to sinks, and from states to blocks."""

from collections.abc import Iterator, Sequence

import torch

from exo.runner.engines.vllm.kv.exchange import Exchange, Outgoing
from exo.runner.engines.vllm.kv.host_copies import HostCopies
from exo.runner.engines.vllm.kv.layers import Layer, Layers
from exo.runner.engines.vllm.kv.layout import read, write
from exo.runner.engines.vllm.kv.numbers import numbers_of
from exo.runner.engines.vllm.kv.steps import Span
from exo.runner.kv.form import AttentionState, Piece

PIECE = 1024
"""Tokens that are copied at once, at most: what a prefix cache holds can be long."""


class Transfer:
    """Copies what the scheduler's spans name."""

    def __init__(self, exchange: Exchange, layers: Layers) -> None:
        self._exchange = exchange
        self._layers = layers
        self._copies = HostCopies()
        self._saved: set[str] = set()
        """Layers that have handed out what this step computed."""

    def load(self, spans: Sequence[Span]) -> None:
        """Puts states from elsewhere into blocks, and forgets them."""
        for span in spans:
            incoming = self._exchange.incoming.pop(span.task_id, None)
            if incoming is not None:  # else it was cancelled
                for start, end in _parts(span):
                    self._load(incoming.layers, span, start, end)

    def save(self, name: str, spans: Sequence[Span]) -> None:
        """Hands out what the layer of this name has computed, and what its blocks had before."""
        layer = self._layers.by_name.get(name)
        if layer is None or name in self._saved:
            return
        self._saved.add(name)
        for span in spans:
            outgoing = self._exchange.outgoing.get(span.task_id)
            if outgoing is not None:
                for start, end in _parts(span):
                    self._save(layer, outgoing, span, start, end)

    def finish(self, spans: Sequence[Span]) -> None:
        """Hands out what is left of the step. A layer inside a CUDA graph tells nobody when it has computed."""
        for name in self._layers.by_name:
            self.save(name, spans)
        self._saved.clear()
        self._copies.finish()
        for span in spans:
            outgoing = self._exchange.outgoing.get(span.task_id)
            if outgoing is not None:
                outgoing.sent = span.end

    def _load(self, states: Sequence[torch.Tensor], span: Span, start: int, end: int) -> None:
        slots = self._slots(span, start, end)
        for layer, state in zip(self._layers.by_name.values(), states, strict=True):
            write(layer.cache, layer.layout.index(slots), state[:, start:end].to(layer.cache.device))

    def _save(self, layer: Layer, outgoing: Outgoing, span: Span, start: int, end: int) -> None:
        def hand_out(state: torch.Tensor) -> None:
            keys, values = (numbers_of(one) for one in state)
            outgoing.sink(Piece(layer.index, AttentionState(keys, values), start))

        self._copies.begin(read(layer.cache, layer.layout.index(self._slots(span, start, end))), hand_out)

    def _slots(self, span: Span, start: int, end: int) -> torch.Tensor:
        tokens, size = torch.arange(start, end), self._layers.block_tokens
        return torch.tensor(span.blocks)[tokens // size] * size + tokens % size


def _parts(span: Span) -> Iterator[tuple[int, int]]:
    for start in range(span.start, span.end, PIECE):
        yield start, min(start + PIECE, span.end)
