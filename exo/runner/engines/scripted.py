"""An engine for tests that needs no model: it emits what the request's last user message says, at the pace it says.

It looks to the runner like any other: prompts are tokens, several requests run side by side, faults come from `step`.
"""

import logging
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.model_card import ModelCard
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.errors import Fatal, Rejected, Retryable
from exo.models.vector_form import VectorForm
from exo.runner.engines.admission import check_fitting, completion_limit, context_limit, limit_asked_for
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, Progress, TokenOutput, VectorOutput
from exo.runner.engines.logprobs import told_logprobs
from exo.runner.engines.ranks import SOLO, Peers, Ranks, free_port
from exo.runner.engines.script import Fault, Script, parse_script
from exo.runner.engines.scripted_states import StateRun, check_state
from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from exo.runner.engines.scripted_vectors import TextsRun
from exo.runner.engines.vectors import within_context
from exo.runner.kv.form import PromptState, Sink
from exo.runner.structured.guide import Guide

logger = logging.getLogger(__name__)

CRASH_EXIT_CODE = 70
"""`EX_SOFTWARE` of sysexits.h."""

VECTOR_FORM = VectorForm(shorter=True)
ROOM = 10**6
"""Tokens of one request that it says its memory holds."""
LONGEST_WAIT = 0.05
"""Seconds that one `step` waits at most, so that a slow request does not hold up what came in meanwhile."""


@dataclass(slots=True)
class _Run:
    """One request in flight."""

    task_id: TaskId
    prompt_tokens: int
    script: Script
    tokens: list[int]
    limit: int
    logprobs: int | None
    """As the request asked."""
    due: float
    """When the next output comes, on the clock `time.monotonic`."""
    cached: int = 0
    """Of the prompt's tokens, those whose state came from elsewhere."""
    prefilled: bool = False
    emitted: int = 0


class ScriptedEngine:
    """Emits scripts. Exact about what it is told, and quiet while nothing is due."""

    def __init__(self) -> None:
        self._tokenizer = ScriptedTokenizer()
        self._runs: dict[TaskId, _Run | TextsRun | StateRun] = {}
        self._shard: Shard | None = None

    @property
    def tokenizer(self) -> ScriptedTokenizer:
        """Bytes, and whatever pieces scripts have named."""
        return self._tokenizer

    @property
    def in_flight(self) -> int:
        """Requests submitted and not over."""
        return len(self._runs)

    @property
    def peak_memory_bytes(self) -> int:
        """It holds nothing."""
        return 0

    @property
    def ranks(self) -> Ranks:
        """Every rank emits the same script by itself."""
        return SOLO

    def listen(self, host: str) -> int:
        """A port that nobody will listen at."""
        return free_port(host)

    def join(self, peers: Peers) -> None:
        """There is nothing to talk about."""

    def load(self, shard: Shard, folder: Path, on_progress: Progress) -> None:
        """Reports its layers one by one; `folder` may be empty or missing."""
        self._shard = shard
        for done in range(self._layers + 1):
            on_progress(done, self._layers)

    @property
    def exchanges(self) -> str:
        """It does."""
        return ""

    def held(self, prompt: Sequence[int]) -> int:
        """It keeps nothing."""
        return 0

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        params: SamplingParams,
        guide: Guide | None = None,
        state: PromptState | None = None,
    ) -> None:
        """Queues a request; the script alone says what comes. Raises Rejected, `invalid_script` too.

        With a `state` of its prompt there is no prefill to wait for.
        """
        context = context_limit(params, self._card_for(task_id).context)
        asked = limit_asked_for(params, len(prompt), context)
        limit = completion_limit(len(prompt), asked, context)
        check_fitting(len(prompt), asked, ROOM)
        script = parse_script(self._tokenizer.text(prompt))
        cached = 0 if state is None else self._taken_in(state, prompt)
        self._runs[task_id] = _Run(
            task_id=task_id,
            prompt_tokens=len(prompt),
            script=script,
            tokens=[self._tokenizer.token(piece) for piece in script.tokens],
            limit=limit,
            logprobs=params.logprobs,
            due=time.monotonic() + (0 if cached else script.prefill),
            cached=cached,
        )

    def prefill(self, task_id: TaskId, prompt: Sequence[int], sink: Sink) -> None:
        """Queues a prompt whose state is handed out when the script's prefill is over, at its pace a layer."""
        context = self._card_for(task_id).context
        completion_limit(len(prompt), 1, context)
        script = parse_script(self._tokenizer.text(prompt))
        due = time.monotonic() + script.prefill + script.pace
        self._runs[task_id] = StateRun(task_id, prompt, script, self._layers, sink, due)

    def embed(self, task_id: TaskId, inputs: Sequence[Sequence[int]], params: EmbeddingParams) -> None:
        """Queues texts, each of which may be a script that says when its vector comes, or what goes wrong."""
        card = self._card_for(task_id)
        pooling, dimensions = VECTOR_FORM.chosen(params, card.hidden_size)
        context, ending = context_limit(params, card.context), self._tokenizer.text_ending
        texts = within_context(inputs, context, truncate=params.truncate, ending=ending)
        scripts = [parse_script(self._tokenizer.text(tokens)) for tokens in inputs]
        run = TextsRun(task_id, texts, scripts, pooling, card.hidden_size, dimensions, time.monotonic())
        run.wait_for_next()
        self._runs[task_id] = run

    def step(self) -> list[EngineOutput]:
        """Waits for the earliest request, then gives the next of each that is due. Empty when none was in time."""
        if not self._runs:
            return []
        wait = min(run.due for run in self._runs.values()) - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, LONGEST_WAIT))
        now = time.monotonic()
        due = [run for run in self._runs.values() if run.due <= now]
        outputs = [output for run in due for output in self._outputs(run)]
        for output in outputs:
            if _is_end(output):
                del self._runs[output.task_id]
        return outputs

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Drops these requests at once."""
        for task_id in task_ids:
            self._runs.pop(task_id, None)

    def rest(self) -> None:
        """Holds nothing that others could need."""

    def close(self) -> None:
        """Drops all requests."""
        self._runs.clear()

    def _card_for(self, task_id: TaskId) -> ModelCard:
        """The model's card. Raises Rejected where the task is running already."""
        if self._shard is None:
            raise Fatal("the engine holds no model")
        if task_id in self._runs:
            raise Rejected(f"task {task_id} is running already", code="duplicate_task")
        return self._shard.card

    @property
    def _layers(self) -> int:
        return 0 if self._shard is None else self._shard.end_layer - self._shard.start_layer

    def _taken_in(self, state: PromptState, prompt: Sequence[int]) -> int:
        """How many tokens it covers; 0 where it is not one of this prompt."""
        try:
            check_state(state, prompt, self._layers)
        except Retryable as error:
            logger.warning("a state from elsewhere was left: %s", error)
            return 0
        return state.tokens

    def _outputs(self, run: _Run | TextsRun | StateRun) -> list[EngineOutput]:
        match run:
            case _Run():
                return [self._output(run)]
            case TextsRun():
                return _next_vector(run)
            case StateRun():
                return [_next_layer(run)]

    def _output(self, run: _Run) -> EngineOutput:
        """What is due: the prefill's end, a token, or the fault."""
        # Counted from when it was due, so that the pace holds on the average.
        run.due += run.script.pace
        if not run.prefilled:
            run.prefilled = True
            return PrefillOutput(run.task_id, run.prompt_tokens, run.prompt_tokens, run.cached)
        fault = run.script.fault
        if fault is not None and run.emitted >= fault.after:
            return _fail(run.task_id, fault)
        token = _next_token(run)
        return token if run.logprobs is None else replace(token, logprobs=self._logprobs(token.token, run.logprobs))

    def _logprobs(self, token: int, count: int) -> TokenLogprobs:
        """The script's token is certain, and all others are impossible."""
        others = [(one, -math.inf) for one in range(count) if one != token]
        return told_logprobs(token, 0.0, [(token, 0.0), *others][:count], self._tokenizer.token_bytes)


def _next_token(run: _Run) -> TokenOutput:
    """The script's next token, its end token, or the last one that `max_tokens` allows."""
    if run.emitted == len(run.tokens):
        return TokenOutput(run.task_id, END_TOKEN, "stop")
    token = run.tokens[run.emitted]
    run.emitted += 1
    said_all = run.emitted == len(run.tokens) and run.script.finish == "length"
    return TokenOutput(run.task_id, token, "length" if said_all or run.emitted == run.limit else None)


def _next_vector(run: TextsRun) -> list[EngineOutput]:
    """The vector that is due, or the fault in its place."""
    fault = run.scripts[run.given].fault
    if fault is not None:
        return [_fail(run.task_id, fault)]
    outputs = run.next_vector()
    run.wait_for_next()
    return outputs


def _next_layer(run: StateRun) -> EngineOutput:
    """The layer that is due, or the fault in its place."""
    run.due += run.script.pace
    fault = run.script.fault
    if fault is not None and run.given >= fault.after:
        return _fail(run.task_id, fault)
    return run.next_layer()


def _is_end(output: EngineOutput) -> bool:
    """Whether a request is over with this."""
    match output:
        case FailedOutput():
            return True
        case TokenOutput():
            return output.finish_reason is not None
        case VectorOutput() | PrefillOutput():
            return output.is_last


def _fail(task_id: TaskId, fault: Fault) -> FailedOutput:
    """What the script asks for. Returns for `error` only."""
    match fault.kind:
        case "error":
            return FailedOutput(task_id, "engine_error", f"the script fails after {fault.after} tokens")
        case "out_of_memory":
            raise MemoryError(f"the script runs out of memory after {fault.after} tokens")
        case "crash":
            os._exit(CRASH_EXIT_CODE)
        case "hang":
            while True:
                time.sleep(3600)
        case _:
            assert_never(fault.kind)
