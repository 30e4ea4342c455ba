"""The `options` of Ollama's requests: how tokens are chosen, and how a model is to be loaded.

Where nothing is said, Ollama's own defaults hold. What exo does not have may be there with its default, which asks for
nothing; with any other value it is refused by its name.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import StopSequence, Strict, Unsupported
from exo.domain.constraint import Constraint
from exo.domain.sampling import (
    INTEGER_MOST,
    SEEDS,
    TEMPERATURE_MOST,
    TOP_P_LEAST,
    Count,
    Penalty,
    RepetitionPenalty,
    SamplingParams,
)

STOP_MOST = 64
"""Each is looked for at each token."""
TEMPERATURE = 0.8
TOP_K = 40
TOP_P = 0.9
REPEAT_PENALTY = 1.1
REPEAT_LAST_N = 64
NO_SEED = -1
"""Every answer is another one."""


def _only(default: float, reason: str) -> BeforeValidator:
    """Takes `default` alone; anything else is refused with the reason."""

    def check(value: object) -> None:
        if value is None or (value == default and isinstance(value, bool) == isinstance(default, bool)):
            return
        named = {"default": str(default).lower(), "reason": reason}
        raise PydanticCustomError("not_supported", "only {default} is supported: {reason}", named)

    return BeforeValidator(check)


OF_ANSWERS = (
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "presence_penalty"),
    *("frequency_penalty", "seed", "num_predict", "stop"),
)
"""The options that have a meaning for an answer alone."""
_BY_ITSELF = "exo places a model by what its nodes have"
_NO_SUCH = "exo does not choose tokens that way"


class Options(Strict):
    """Null stands for the default throughout."""

    temperature: Annotated[float, Field(ge=0, le=TEMPERATURE_MOST)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=INTEGER_MOST)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: RepetitionPenalty | None = None
    repeat_last_n: Annotated[int, Field(ge=-1, le=INTEGER_MOST)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    num_predict: Annotated[int, Field(ge=-2, le=INTEGER_MOST)] | None = None
    num_ctx: Count | None = None
    stop: Annotated[list[StopSequence], Field(max_length=STOP_MOST)] | None = None

    num_keep: int | None = None
    """Of a context that is full, and then cut: here it never is."""
    use_mmap: bool | None = None
    """How a file is read, whatever comes of it."""
    mirostat: Annotated[None, _only(0, _NO_SUCH)] = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    """Both go with `mirostat`, and are nothing without it."""
    tfs_z: Annotated[None, _only(1, _NO_SUCH)] = None
    typical_p: Annotated[None, _only(1, _NO_SUCH)] = None
    penalize_newline: Annotated[None, _only(True, "a line break is a token as all others")] = None
    num_batch: Annotated[None, _only(512, "how much of a prompt is computed at once follows from the speed")] = None
    num_gpu: Annotated[None, _only(-1, _BY_ITSELF)] = None
    main_gpu: Annotated[None, _only(0, _BY_ITSELF)] = None
    num_thread: Annotated[None, _only(0, "EXO_CPU_THREADS sets that for a node")] = None
    numa: Unsupported = None
    low_vram: Unsupported = None
    f16_kv: Unsupported = None
    logits_all: Unsupported = None
    vocab_only: Unsupported = None
    use_mlock: Unsupported = None
    embedding_only: Unsupported = None

    def sampling(self, logprobs: int | None, constraint: Constraint | None) -> SamplingParams:
        """For the engine, with what requests have beside their options."""
        looks_back = self.repeat_last_n if self.repeat_last_n is not None else REPEAT_LAST_N
        penalty = REPEAT_PENALTY if self.repeat_penalty is None else self.repeat_penalty
        return SamplingParams(
            temperature=TEMPERATURE if self.temperature is None else self.temperature,
            top_k=max(0, TOP_K if self.top_k is None else self.top_k),
            top_p=TOP_P if self.top_p is None else max(self.top_p, TOP_P_LEAST),
            min_p=self.min_p or 0.0,
            repetition_penalty=penalty if looks_back else 1.0,
            repetition_context=looks_back if looks_back > 0 else INTEGER_MOST,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            seed=None if self.seed in (None, NO_SEED) else self.seed % SEEDS,
            max_tokens=self.num_predict if self.num_predict and self.num_predict > 0 else None,
            stops_at_context=True,
            context=self.num_ctx,
            stop=tuple(self.stop or ()),
            logprobs=logprobs,
            constraint=constraint,
        )
