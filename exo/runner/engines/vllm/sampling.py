"""One request's parameters in vLLM's words."""

from collections.abc import Collection, Mapping

import vllm
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from exo.domain.sampling import SamplingParams
from exo.runner.engines.vllm.repetition import repetition_arguments


def vllm_params(
    params: SamplingParams, most: int, end_tokens: Collection[int], grammar: str | None
) -> vllm.SamplingParams:
    """For at most `most` tokens; text is made of them elsewhere. `grammar`: of all that may be said, in Lark."""
    return vllm.SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=dict(params.logit_bias) or None,
        seed=params.seed,
        max_tokens=most,
        logprobs=params.logprobs,
        ignore_eos=True,  # those of the tokenizer alone; ours are of the model's files too
        stop_token_ids=sorted(end_tokens),
        structured_outputs=None if grammar is None else StructuredOutputsParams(grammar=grammar),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=repetition_arguments(params),
    )


def prefill_params(extra: Mapping[str, object]) -> vllm.SamplingParams:
    """For a prompt that is only computed: of one token, which nobody reads."""
    return vllm.SamplingParams(
        temperature=0,
        max_tokens=1,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        extra_args=dict(extra),
    )
