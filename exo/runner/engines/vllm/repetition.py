"""The repetition penalty over the last tokens only, as MLX' engine has it; vLLM's own looks back on the whole text.

It is a processor in the list that vLLM takes for that. vLLM runs it where its own would come: after biases, before the
penalties of frequency and presence.
"""

from collections.abc import Callable, Sequence

import torch
import vllm
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from exo.domain.sampling import SamplingParams

_NAME = "exo_repetition"
_Processor = Callable[[list[int], list[int], torch.Tensor], torch.Tensor]
"""From the prompt, the answer so far and the logits of one request to the logits to go on with."""


def repetition_arguments(params: SamplingParams) -> dict[str, object] | None:
    """What a request's parameters for vLLM carry, for the processor; None where nothing is penalized."""
    if params.repetition_penalty == 1:
        return None
    return {_NAME: (params.repetition_penalty, params.repetition_context)}


class RecentRepetition(AdapterLogitsProcessor):
    """For every request that carries these arguments."""

    def is_argmax_invariant(self) -> bool:
        """No: it may change which token is the likeliest."""
        return False

    def new_req_logits_processor(self, params: vllm.SamplingParams) -> _Processor | None:
        """Of one request; None where it has none."""
        given = (params.extra_args or {}).get(_NAME)
        return None if given is None else _processor(*given)


def _processor(penalty: float, most: int) -> _Processor:
    """Divides the positive logits of the last `most` tokens, the prompt's included, and multiplies the negative ones
    (https://arxiv.org/abs/1909.05858)."""

    def penalized(prompt: list[int], answer: list[int], logits: torch.Tensor) -> torch.Tensor:
        recent = torch.tensor(_last(prompt, answer, most), device=logits.device)
        of_recent = logits[recent]
        logits[recent] = torch.where(of_recent < 0, of_recent * penalty, of_recent / penalty)
        return logits

    return penalized


def _last(prompt: Sequence[int], answer: Sequence[int], most: int) -> list[int]:
    before = max(0, most - len(answer))
    return [*(prompt[-before:] if before else ()), *answer[-most:]]
