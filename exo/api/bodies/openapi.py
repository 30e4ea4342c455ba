"""What Litestar cannot see of an endpoint, which reads its body itself, so that every error names its place, and
answers with bytes: told by types, for the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

from litestar.openapi.spec import Operation
from typing_extensions import TypedDict

from exo.domain.messages.events import Recorded

JSON = "application/json"
EVENTS = "text/event-stream"
MARK = "x-exo"
"""Where a Described lies in an operation until the document is completed."""


@dataclass(frozen=True, slots=True)
class Described:
    """An endpoint's body and answers."""

    body: object = None
    """Its type; None: there is none, or only `example` is known of it."""
    example: Mapping[str, object] | None = None
    answer: object = None
    """Its type, where the status is that of the route; None: any JSON."""
    others: Mapping[int, object] = field(default_factory=dict[int, object])
    """Types of answers with another status."""
    media_types: tuple[str, ...] = (JSON,)
    """Of the answer. Only JSON has a type."""


def operation(
    *,
    body: object = None,
    example: Mapping[str, object] | None = None,
    answer: object = None,
    others: Mapping[int, object] | None = None,
    media_types: tuple[str, ...] = (JSON,),
) -> type[Operation]:
    """An operation that is described so."""
    described = Described(body, example, answer, others or {}, media_types)

    @dataclass
    class DescribedOperation(Operation):
        def to_schema(self) -> dict[str, Any]:
            return {**super().to_schema(), MARK: described}

    return DescribedOperation


class Pending(TypedDict):
    """A command that nobody has decided on yet."""

    command_id: str
    status: Literal["pending"]


class Outcome(TypedDict):
    """What became of a command. A rejected one has the last two."""

    id: str
    status: Literal["pending", "done", "rejected"]
    events: list[Recorded]
    code: NotRequired[str]
    reason: NotRequired[str]


def command(*, body: object = None, example: Mapping[str, object] | None = None) -> type[Operation]:
    """An operation that sends a command: 202, or with `wait` its outcome."""
    return operation(body=body, example=example, answer=Pending, others={200: Outcome})
