"""Requests that wait: what can never fit is refused at once, the others wait in their order for memory and a slot."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from exo.domain.embedding import Pooling
from exo.domain.ids import TaskId
from exo.errors import Rejected
from exo.runner.engines.admission import MEMORY_PATIENCE
from exo.runner.engines.base import FailedOutput
from exo.runner.engines.mlx.keeping import Keeping
from exo.runner.engines.mlx.prefix_cache import as_tokens
from exo.runner.engines.mlx.request import Request
from exo.runner.engines.mlx.room import Room
from exo.runner.engines.mlx.sampling import Choice
from exo.runner.engines.mlx.texts import TextsRequest, sorted_texts
from exo.runner.engines.ranks import Ranks
from exo.runner.kv.form import Sink

AnyRequest = Request | TextsRequest


class RequestQueue:
    """In the order of arrival, which is the same on all ranks. `held` are always bytes of requests' states."""

    def __init__(self, room: Room, keeping: Keeping, ranks: Ranks, clock: Callable[[], float]) -> None:
        self._room = room
        self._keeping = keeping
        self._ranks = ranks
        self._clock = clock
        self._requests: deque[AnyRequest] = deque()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, task_id: TaskId) -> bool:
        return any(request.task_id == task_id for request in self._requests)

    def submit(
        self,
        task_id: TaskId,
        prompt: Sequence[int],
        choice: Choice,
        max_tokens: int | None,
        context: int,
        held: int,
        sink: Sink | None = None,
    ) -> None:
        """Adds a request for tokens, or, with a `sink`, for the prompt's state.

        Raises Rejected: `invalid_request`, and what `Room.accept` says.
        """
        tokens = _checked(prompt)
        most, reserved = self._room.accept(len(prompt), max_tokens, context, held + self._keeping.nbytes)
        self._add(Request(task_id, tokens, choice, most, reserved, self._arrivals, self._deadline(), sink=sink))

    def embed(
        self, task_id: TaskId, inputs: Sequence[Sequence[int]], pooling: Pooling, dimensions: int, held: int
    ) -> None:
        """Adds a request for vectors. Raises Rejected: `invalid_request`, and `context_length_exceeded` where memory
        does not hold one of the texts.
        """
        texts = sorted_texts(as_tokens(_checked(tokens)) for tokens in inputs)
        request = TextsRequest(task_id, texts, pooling, dimensions, self._arrivals, self._deadline())
        fitting = self._room.fitting(request.reserved, held + self._keeping.nbytes)
        if request.reserved > fitting:
            longest = next(index for index, text in texts.items() if text.left == request.reserved)
            raise Rejected(
                f"input[{longest}]: it has {request.reserved} tokens, and this machine's memory holds {fitting}",
                code="context_length_exceeded",
                param=f"input[{longest}]",
            )
        self._add(request)

    def drop(self, task_id: TaskId) -> None:
        """Forget a request, if it is there."""
        self._requests = deque(request for request in self._requests if request.task_id != task_id)

    def clear(self) -> None:
        """Forget all."""
        self._requests.clear()

    def take(self, running: Collection[AnyRequest], held: int) -> AnyRequest | FailedOutput | None:
        """The first one, if memory holds it beside those that run, or its failure, if it has waited too long."""
        if not self._requests:
            return None
        head = self._requests[0]
        if self.has_room([*running, head], held):
            return self._requests.popleft()
        if self._expired(head):
            return _no_memory(self._requests.popleft())
        return None

    def has_room(self, requests: Iterable[AnyRequest], held: int) -> bool:
        """Whether memory holds all of these. The prefix cache gives up what it must for it."""
        together: list[int] = []
        beside: list[int] = []
        for request in requests:
            (together if isinstance(request, Request) else beside).append(request.reserved)
        return self._keeping.make_room(self._room.shortage(together, beside, held))

    def _add(self, request: AnyRequest) -> None:
        self._requests.append(request)
        self._arrivals += 1

    def _deadline(self) -> float:
        return self._clock() + MEMORY_PATIENCE

    def _expired(self, request: AnyRequest) -> bool:
        (waits,) = self._ranks.agree([self._clock() < request.deadline])
        return not waits


def _checked(prompt: Sequence[int]) -> tuple[int, ...]:
    try:
        as_tokens(prompt)
    except (OverflowError, TypeError, ValueError) as error:
        raise Rejected("the prompt holds something that is no token", param="messages") from error
    return tuple(prompt)


def _no_memory(request: AnyRequest) -> FailedOutput:
    return FailedOutput(
        request.task_id,
        "insufficient_memory",
        f"no memory for {request.reserved} tokens of keys and values became free in {MEMORY_PATIENCE:.0f} s; "
        "ask again when other requests have ended, or for fewer tokens",
    )
