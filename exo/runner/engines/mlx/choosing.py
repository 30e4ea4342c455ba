"""Errors of what chooses tokens: they are a request's own, and with several ranks every rank meets them.

All ranks call the same processors and samplers with the same tokens and with logits of the same shape. What these
refuse is refused on each rank, at the same place: before it the same messages went out, after it none. A rank's own are
memory and connections, for which MLX and Python raise RuntimeError, OSError and MemoryError. Those are left as they
are, and so is all that a model raises: ranks have different layers of it.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from exo.domain.ids import TaskId

P = ParamSpec("P")
T = TypeVar("T")

SAME_ON_ALL_RANKS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)


class ChoiceError(Exception):
    """A token could not be chosen, or told of."""

    def __init__(self, cause: Exception, task_id: TaskId | None) -> None:
        """`task_id` is whose token it was, where that is known: a sampler draws for several requests."""
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.task_id = task_id


def guarded(function: Callable[P, T], task_id: TaskId | None = None) -> Callable[P, T]:
    """`function`, which raises ChoiceError for what every rank meets."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SAME_ON_ALL_RANKS as error:
            raise ChoiceError(error, task_id) from error

    return call
