"""What the runner asks of an engine, and what an engine answers. Nothing here knows of MLX or any other library.

All calls to one engine come from one thread, `load` first: arrays and streams belong to the thread that made them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import FinishReason, SamplingParams
from exo.domain.shard import Shard
from exo.models.output_format import OutputFormat
from exo.runner.engines.ranks import Peers, Ranks
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.vocabulary import OpenParser
from exo.runner.structured.guide import Guide
from exo.runner.structured.vocabulary import VocabularySource

if TYPE_CHECKING:  # it imports numpy, which starts threads, and is not to be there before MLX has its BLAS
    from exo.runner.kv.form import PromptState, Sink


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One new token of a request, the last one where `finish_reason` is set.

    With "stop", `token` is the end token and carries no text; with "length" it is an ordinary token. Either way it
    was computed, so the outputs of a request, counted, are its completion tokens.
    """

    task_id: TaskId
    token: int
    finish_reason: FinishReason | None = None
    logprobs: TokenLogprobs | None = None
    """Where the request asked for them."""


@dataclass(frozen=True, slots=True)
class PrefillOutput:
    """How many of a prompt's tokens have been computed, or of the tokens of all texts of a request for vectors."""

    task_id: TaskId
    done: int
    total: int
    cached: int = 0
    """Of `done`, those that did not have to be computed: another request had begun with them."""
    is_last: bool = False
    """Of a request for its state alone: all of it is handed out, and the request is over."""


@dataclass(frozen=True, slots=True)
class VectorOutput:
    """What one text of a request for vectors became. They come in any order; with the last one the request is over."""

    task_id: TaskId
    index: int
    """Of the text."""
    vector: bytes
    """Of length 1: float32 numbers, little-endian."""
    is_last: bool


@dataclass(frozen=True, slots=True)
class FailedOutput:
    """This request is over, with an error; the others go on. `code` is a stable word, `message` is for people."""

    task_id: TaskId
    code: str
    message: str
    param: str | None = None
    """The parameter that is at fault, where it is one."""


EngineOutput = TokenOutput | PrefillOutput | VectorOutput | FailedOutput

Progress = Callable[[int, int], None]
"""Called with layers loaded, of how many."""


class Tokenizer(Protocol):
    """Text to tokens and back, as the loaded model has them."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a generation."""
        ...

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], arguments: Mapping[str, object] | None = None
    ) -> list[int]:
        """The prompt's tokens, ending where the assistant begins. `arguments` go to the chat template: tools, switches.

        Raises Rejected where the template refuses.
        """
        ...

    def encode_text(self, text: str) -> list[int]:
        """A text's tokens as it stands, with what the model wants before any text. Names of special tokens are them."""
        ...

    @property
    def text_ending(self) -> Sequence[int]:
        """The tokens that `encode_text` puts after every text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        ...

    def output_format(self, prompt: Sequence[int]) -> OutputFormat:
        """How what follows this prompt is to be read."""
        ...

    def detokenizer(self, markers: Collection[str] = (), after: Sequence[int] = ()) -> Detokenizer:
        """A fresh one, for one generation, that shows these markers even where a special token stands for one.

        `after`: tokens of the text that it continues, where it does, so that a space between the two is kept.
        """
        ...

    @property
    def harmony_parsers(self) -> OpenParser | None:
        """What reads Harmony from tokens, for a model of gpt-oss' vocabulary."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Tokens are numbered from 0 up to this."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text, a special one its name; empty for a number that stands for none."""
        ...

    def vocabulary_source(self) -> VocabularySource | None:
        """What another process makes the vocabulary of; None where the engine has no need of guides. It takes a moment:
        call it in a thread."""
        ...

    def guide(self, request: GenerationRequest, prompt: Sequence[int]) -> Guide | None:
        """What holds the answer to this prompt to the format, or to the calls, that the request demands.

        None where it demands nothing, or the engine has no need of a guide. It may take seconds, and nothing can stop
        it: call it in a thread, and only with a format that was tried. Raises Rejected, with the parameter, for what
        cannot be held.
        """
        ...


class Engine(Protocol):
    """One shard of one model that generates for several requests side by side."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises Fatal before `load`."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests submitted that have neither finished, failed nor been cancelled."""
        ...

    @property
    def peak_memory_bytes(self) -> int:
        """The most that it has held at once since the start of the process; 0 where it does not know."""
        ...

    @property
    def ranks(self) -> Ranks:
        """The processes that hold the model together; SOLO before `join`."""
        ...

    def listen(self, host: str) -> int:
        """A port of this machine's address `host` for the other ranks, where there are several; called before `join`.

        Raises Retryable where the machine has no such address.
        """
        ...

    def join(self, peers: Peers) -> None:
        """Meets the other ranks, where there are several; called before `load`. It may wait for them without end.

        Raises Fatal where they cannot talk in the way that is asked for, and Retryable where they did not meet.
        """
        ...

    def load(self, shard: Shard, folder: Path, on_progress: Progress) -> None:
        """Holds the shard's weights, read from `folder`, when it returns. Raises Fatal where it cannot."""
        ...

    @property
    def exchanges(self) -> str:
        """Empty where states of the loaded model can be handed out and taken in; else the reason why not."""
        ...

    def held(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens need not be computed: their state is here."""
        ...

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request, held to `guide` where there is one; its first output comes from a later `step`.

        `state`: of the prompt's first tokens, from elsewhere. They count as cached. One that does not fit the model, or
        that memory does not hold, is left with a line in the log: the whole prompt is computed.

        Raises Rejected: `empty_prompt`; `context_length_exceeded` where the prompt and `max_tokens` (or one token)
        are longer than the card's context, than the request's own, or than what memory could hold of it alone;
        `duplicate_task` where the task is in flight. A request that fits only when others have ended waits, and fails
        in the end.
        """
        ...

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Queues a prompt whose state is wanted alone: of all tokens but the last, which who decodes begins with.

        `sink` gets it layer by layer while later layers are computed, then slice by slice, during `step`; what other
        requests began with too is handed out without being computed. Outputs are PrefillOutput, the last one with
        `is_last`, or a FailedOutput.

        Raises Rejected as `submit` does, and `exchange_not_supported` with the reason where `exchanges` has one.
        """
        ...

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Queues texts, each of them tokens, for a vector each; the first output comes from a later `step`.

        Raises Rejected: `empty_prompt` and `context_length_exceeded` of a text, named `input[3]`; `duplicate_task`;
        `embeddings_not_supported` where the model makes no vectors; `unsupported_parameter` for what it does not do.
        """
        ...

    def step(self) -> list[EngineOutput]:
        """One decode step for every running request, and a slice of prefill, or of texts for vectors, for waiting ones.

        Empty when idle; it may be empty at other times too, but not without work or a wait inside.

        Raises whatever broke the engine as a whole; nothing is to be expected of it afterwards.
        """
        ...

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests: no later `step` yields anything of them. Unknown and finished ones are ignored."""
        ...

    def rest(self) -> None:
        """Called now and then while nothing is in flight: gives back memory that it could do without."""
        ...

    def close(self) -> None:
        """Gives back what the engine holds. It may be called twice, and before `load`."""
        ...
