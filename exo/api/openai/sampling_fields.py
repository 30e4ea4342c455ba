"""The parameters that say how tokens are chosen: OpenAI's, and those that vLLM and others added."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from exo.api.bodies.strict import StopSequence, Strict
from exo.api.openai.choice_requests import ChoiceCount
from exo.domain.constraint import Constraint
from exo.domain.sampling import (
    BIASES_MOST,
    INTEGER_MOST,
    REPETITION_CONTEXT,
    SEEDS,
    TEMPERATURE_MOST,
    TOP_P_LEAST,
    Bias,
    Count,
    Penalty,
    RepetitionPenalty,
    SamplingParams,
    TokenNumber,
)

STOP_MOST = 4


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class SamplingFields(Strict):
    """Null stands for the default throughout."""

    temperature: Annotated[float, Field(ge=0, le=TEMPERATURE_MOST)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Count | None = None
    stop: Annotated[list[StopSequence], Field(max_length=STOP_MOST), BeforeValidator(_listed)] | None = None
    seed: int | None = None
    n: ChoiceCount | None = None
    top_k: Annotated[int, Field(ge=-1, le=INTEGER_MOST)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    repetition_context_size: Count | None = None
    logit_bias: Annotated[dict[TokenNumber, Bias], Field(max_length=BIASES_MOST)] | None = None

    def sampling(self, max_tokens: int | None, logprobs: int | None, constraint: Constraint | None) -> SamplingParams:
        """For the engine, with what each endpoint has under names of its own."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else max(self.top_p, TOP_P_LEAST),
            seed=None if self.seed is None else self.seed % SEEDS,
            max_tokens=max_tokens,
            stop=tuple(self.stop or ()),
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            repetition_context=self.repetition_context_size or REPETITION_CONTEXT,
            logit_bias=tuple(sorted((self.logit_bias or {}).items())),
            logprobs=logprobs,
            constraint=constraint,
        )
