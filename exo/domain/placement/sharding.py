"""How a model is cut over nodes: layers in proportion to memory, or a slice of every layer each."""

from collections.abc import Sequence

from exo.domain.model_card import ModelCard

TENSOR_MOST = 64
"""Ranks that are tried when those are named that would do."""


def pipeline_layers(layers: int, usable: Sequence[int], needed: int) -> list[int] | None:
    """Layers for each node, in proportion to its usable bytes by largest remainder, at least one each.

    `needed` are the bytes of all layers. None where the nodes cannot take them: a layer is not cut.
    """
    most = [layers * bytes_ // needed for bytes_ in usable]
    if sum(most) < layers or min(most) < 1:
        return None
    counts = _proportional(layers, usable)
    for _ in range(layers):
        over = next((index for index, count in enumerate(counts) if count > most[index]), None)
        if over is None:
            return counts
        # Rounding gave it one too many. The one with most room has it instead.
        taker = max(range(len(counts)), key=lambda index: most[index] - counts[index])
        counts[over] -= 1
        counts[taker] += 1
    return None


def _proportional(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers that sum to `total`, by largest remainder, none below one (https://en.wikipedia.org/wiki/Quota_method)."""
    whole = sum(weights)
    counts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-remainders[index], index))
    for index in by_remainder[: total - sum(counts)]:
        counts[index] += 1
    for index, count in enumerate(counts):
        if count == 0:
            counts[counts.index(max(counts))] -= 1
            counts[index] = 1
    return counts


def tensor_problem(card: ModelCard, ranks: int) -> str | None:
    """Why a model cannot be cut into so many slices of every layer, and how many would do; None where it can."""
    if not card.supports_tensor:
        return f"mlx-lm does not shard the family {card.family} by tensor: use pipeline sharding"
    odd = _odd(card, ranks)
    if not odd:
        return None
    sizes = ", ".join(map(str, tensor_sizes(card)))
    hint = f"{sizes} nodes would do" if sizes else "no number of nodes does"
    return f"{' and '.join(odd)} do not divide by {ranks}: {hint}"


def slices_most(card: ModelCard, most: int) -> int:
    """The largest number of GPUs of one machine, up to `most`, over which vLLM divides a model: its heads divide."""
    counts = range(most, 1, -1)
    return next((count for count in counts if card.heads % count == 0 and card.kv_heads % count == 0), 1)


def tensor_sizes(card: ModelCard) -> list[int]:
    """The numbers of ranks, from two to TENSOR_MOST, over which the model's shape can be cut."""
    return [ranks for ranks in range(2, TENSOR_MOST + 1) if not _odd(card, ranks)]


def _odd(card: ModelCard, ranks: int) -> list[str]:
    """What does not divide by the number of ranks."""
    shape = (("heads", card.heads), ("KV heads", card.kv_heads), ("hidden size", card.hidden_size))
    return [f"{value} {name}" for name, value in shape if value % ranks]
