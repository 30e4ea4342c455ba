"""The scheduler's side: which tokens of which prompts a step takes in or hands out, and in which blocks they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.v1.request import Request

from exo.domain.ids import TaskId
from exo.runner.engines.vllm.kv.exchange import TASK, Exchange, Incoming, Outgoing


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, end) of a prompt, and the blocks in which the prompt is from its beginning."""

    task_id: TaskId
    start: int
    end: int
    blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class StepSpans(KVConnectorMetadata):
    """What a step takes in before it computes, and what it hands out of what it has computed."""

    loads: Sequence[Span] = ()
    saves: Sequence[Span] = ()


NOTHING = StepSpans()


class StepPlan:
    """Follows the requests of an exchange through vLLM's scheduler."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._outgoing: dict[str, tuple[Request, Outgoing]] = {}
        """By vLLM's ids."""
        self._loads: list[Span] = []

    def begin(self, request: Request) -> None:
        """A request came in."""
        outgoing = self._exchange.outgoing.get(task_of(request))
        if outgoing is not None:
            self._outgoing[request.request_id] = (request, outgoing)

    def loadable(self, request: Request, computed: int) -> int:
        """How many tokens of a state from elsewhere follow the `computed` ones, which are in blocks already."""
        incoming = self._incoming(request)
        return max(0, incoming.tokens - computed) if incoming is not None else 0

    def load(self, request: Request, blocks: Sequence[int], count: int) -> None:
        """The request has blocks; the last `count` tokens of its state are to be put into them."""
        incoming = self._incoming(request)
        if incoming is None:
            return
        if count:
            self._loads.append(Span(task_of(request), incoming.tokens - count, incoming.tokens, blocks))
        else:  # the prefix cache held as much
            self._exchange.forget(task_of(request))

    def step(self, scheduled: Mapping[str, int], blocks_of: Callable[[str], Sequence[int]]) -> StepSpans:
        """Of a step that computes so many tokens of each request, by vLLM's ids."""
        if not self._outgoing and not self._loads:
            return NOTHING
        loads, self._loads = self._loads, []
        saves = [self._save(one, scheduled[one], blocks_of(one)) for one in self._outgoing if one in scheduled]
        return StepSpans(loads, [span for span in saves if span.start < span.end])

    def end(self, request: Request) -> None:
        """A request is over."""
        self._outgoing.pop(request.request_id, None)

    def _incoming(self, request: Request) -> Incoming | None:
        return self._exchange.incoming.get(task_of(request))

    def _save(self, request_id: str, count: int, blocks: Sequence[int]) -> Span:
        """In the first step of what the prefix cache held too. What is computed again after a preemption is not handed
        out again."""
        request, outgoing = self._outgoing[request_id]
        end = min(request.num_computed_tokens + count, outgoing.tokens)
        span = Span(task_of(request), outgoing.planned, end, blocks)
        if outgoing.planned == 0:
            outgoing.cached = request.num_computed_tokens
        outgoing.planned = max(end, outgoing.planned)
        return span


def task_of(request: Request) -> TaskId:
    """The task that a request was submitted as; empty where it exchanges nothing."""
    return TaskId((request.kv_transfer_params or {}).get(TASK, ""))
