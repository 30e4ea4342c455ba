"""`GET /v1/usage`: who used what, from this node's own log."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import QueryParameter
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.errors import Fatal, Rejected

By = Annotated[
    Literal["model", "key", "day"], QueryParameter(name="by", description="What it is summed by; days are UTC")
]
Since = Annotated[
    str | None,
    QueryParameter(
        name="since", description="Only what ended at this time or later: 2026-11-01, with or without hours, or 30d ago"
    ),
]


class UsageFigures(TypedDict):
    """Sums over generations that ended."""

    requests: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prefill_s: float
    decode_s: float


class GroupUsage(UsageFigures, total=False):
    """Those of one group, which one of these names."""

    model: str
    key: str
    day: str


class UsageAnswer(TypedDict):
    """By group, and in all."""

    object: Literal["usage"]
    by: Literal["model", "key", "day"]
    since: str | None
    data: list[GroupUsage]
    total: UsageFigures


@get(
    "/v1/usage",
    summary="Usage by model, key or day",
    tags=["Cluster"],
    operation_class=operation(answer=UsageAnswer),
)
async def show_usage(api: Api, by: By = "model", since: Since = None) -> Response[bytes]:
    """Requests, tokens and seconds of the generations that ended, summed by group and in all."""
    # Imported here: the database is of no use to an API before somebody asks for what lies in it.
    from exo.log.explain.usage import read_usage, total  # noqa: PLC0415

    moment = None if since is None else _moment(since)
    try:
        found = await read_usage(
            api.settings.log_file, by, since=None if moment is None else moment.timestamp(), utc=True
        )
    except Fatal as error:
        reason = (
            f"{error}. Usage is answered from the log of the API's own node: start `exo master` there, or ask another"
        )
        raise Rejected(reason, code="unavailable") from error
    data = [{by: one.group, **one.figures()} for one in found]
    body = {
        "object": "usage",
        "by": by,
        "since": None if moment is None else moment.isoformat(),
        "data": data,
        "total": total(found).figures(),
    }
    return json_response(body)


def _moment(since: str) -> datetime:
    """A time, of UTC where it names no zone, or how long ago."""
    from exo.log.moments import parse_moment  # noqa: PLC0415

    try:
        if "-" in since:
            moment = datetime.fromisoformat(since)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        ago = parse_moment(since, datetime.now(UTC))
        if isinstance(ago, datetime):
            return ago
    except (ValueError, OverflowError):
        pass
    reason = f"'{since}' is no time such as 2026-11-01 or 2026-11-01T12:00:00Z, nor how long ago, such as 10m or 30d"
    raise Rejected(reason, param="since")
