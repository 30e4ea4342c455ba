"""Who is computed next: the policy of prefill. Pure: no clock, no MLX, so that all ranks decide the same.

Every step gives one token to each request that decodes, and one slice of prefill to the prompts that wait. In three
steps of four the prompt with the fewest tokens left comes first, which makes the mean time to a first token shortest:
a short question passes a long document. In the fourth it is the prompt that came first, so that a long one gets at
least a quarter of the prefill however many short ones keep coming. What a prompt leaves of a slice goes to the next.

A pass through the model has a price of its own, so that short prompts are cheaper together, padded to the longest.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from exo.runner.engines.mlx.slices import PASS_TOKENS

Key = TypeVar("Key")

OLDEST_EVERY = 4
"""Each how many-th step the prompt that came first goes before the shorter ones."""
OVERRUN_PART = 4
"""Of a slice: by so much it may be exceeded to compute a prompt to its end, rather than leave a rest of it that costs a
pass of its own and keeps the request from decoding."""


@dataclass(frozen=True, slots=True)
class WaitingPrompt(Generic[Key]):
    """A prompt that is not computed to its end."""

    key: Key
    left: int
    """Tokens to its end."""
    arrived: int
    """Its number in the order of arrival."""
    until_stop: int
    """Tokens until it must pause, because its state is wanted there; `left` where it need not."""
    can_share: bool = False
    """Whether it may be computed together with others, if that is to its end."""


@dataclass(frozen=True, slots=True)
class Slice(Generic[Key]):
    """So many tokens of this prompt come next."""

    key: Key
    tokens: int
    can_share: bool = False


def next_slices(prompts: Sequence[WaitingPrompt[Key]], budget: int, step: int) -> list[Slice[Key]]:
    """What one step computes: at most one slice a prompt, together about `budget` units; `step` counts the steps.

    At least one token of one prompt is in it where there is one and the budget is for more than a pass.
    """
    slices: list[Slice[Key]] = []
    overrun = budget // OVERRUN_PART
    for prompt in _in_turn(prompts, step):
        ends = prompt.until_stop <= budget + overrun
        tokens = prompt.until_stop if ends else budget - PASS_TOKENS
        if tokens <= 0:
            break
        shares = prompt.can_share and ends and tokens == prompt.left
        joins = shares and any(one.can_share for one in slices)
        slices.append(Slice(prompt.key, tokens, shares))
        budget -= tokens if joins else tokens + PASS_TOKENS
    return slices


def shared_passes(slices: Sequence[Slice[Key]]) -> list[list[Slice[Key]]]:
    """The slices in groups that are computed in one pass each: as long as the padding costs less than a pass."""
    passes: list[list[Slice[Key]]] = [[one] for one in slices if not one.can_share]
    group: list[Slice[Key]] = []
    for one in sorted((one for one in slices if one.can_share), key=lambda one: one.tokens):
        if group and len(group) * (one.tokens - group[-1].tokens) > PASS_TOKENS:
            passes.append(group)
            group = []
        group.append(one)
    return [*passes, group] if group else passes


def affordable(slices: Sequence[Slice[Key]], budget: int) -> Sequence[Slice[Key]]:
    """The first of these that their passes, with all padding, cost no more for than the budget and its overrun, but at
    least one. `next_slices` takes all that share for one pass, which many short texts of different lengths are not."""
    most = budget + budget // OVERRUN_PART
    counts = range(1, len(slices) + 1)
    return slices[: max(1, bisect_right(counts, most, key=lambda count: _price(slices[:count])))]


def _price(slices: Sequence[Slice[Key]]) -> int:
    """Units that they cost."""
    return sum(PASS_TOKENS + len(group) * max(one.tokens for one in group) for group in shared_passes(slices))


def _in_turn(prompts: Sequence[WaitingPrompt[Key]], step: int) -> list[WaitingPrompt[Key]]:
    shortest = sorted(prompts, key=lambda prompt: (prompt.left, prompt.arrived))
    if step % OLDEST_EVERY:
        return shortest
    oldest = min(prompts, key=lambda prompt: prompt.arrived, default=None)
    return [oldest, *(prompt for prompt in shortest if prompt is not oldest)] if oldest else []
