"""`GET /v1/traces`: where the time of each generation went, from this node's own log."""

from typing import Annotated, Literal

from litestar import Response, get
from litestar.params import QueryParameter
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.cluster.log import answer_from_log
from exo.api.context import Api
from exo.api.known.tasks import task_named
from exo.domain.instance import Instance
from exo.domain.prefill import PrefillAttempt
from exo.log.explain import traces
from exo.log.explain.traces import Trace
from exo.log.projection import GenerationRow
from exo.log.store import LogStore

LISTED = 20
LISTED_MOST = 1000

Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=LISTED_MOST, description="How many at most")]
ModelId = Annotated[str | None, QueryParameter(name="model", description="Only of this model, by its full id")]


class TraceHead(TypedDict):
    """A generation, in short. Times are seconds since the epoch; null: it did not come to that."""

    task_id: str
    model_id: str
    key: str
    queued_at: float
    ended_at: float | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    error: str | None


class SpanShown(TypedDict):
    """A part of its time; `seconds` is null while it lasts."""

    name: Literal["generation", "queue", "dispatch", "prefill", "decode", "prefill_elsewhere"]
    parent: str | None
    start: float
    seconds: float | None


class RankShown(TypedDict):
    """A rank that computed it, in step with the others."""

    rank: int
    runner_id: str
    node_id: str
    start_layer: int
    end_layer: int


class TraceShown(TraceHead):
    """All of it."""

    object: Literal["trace"]
    spans: list[SpanShown]
    instance_id: str | None
    ranks: list[RankShown]
    prefill: PrefillAttempt | None


class TracesShown(TypedDict):
    """The last ones, the newest first."""

    object: Literal["list"]
    data: list[TraceHead]


@get("/v1/traces", summary="The last generations", tags=["Cluster"], operation_class=operation(answer=TracesShown))
async def list_traces(api: Api, limit: Limit = LISTED, model: ModelId = None) -> Response[bytes]:
    """The generations that ended last; each has a trace."""

    async def work(store: LogStore) -> bytes:
        found = await traces.recent(store, limit, model)
        answer: TracesShown = {"object": "list", "data": [_head(row) for row in found]}
        return to_json(answer)

    return await answer_from_log(api, work)


@get(
    "/v1/traces/{task_id:str}",
    summary="Where a generation's time went",
    tags=["Cluster"],
    operation_class=operation(answer=TraceShown),
)
async def show_trace(task_id: str, api: Api) -> Response[bytes]:
    """A generation's spans, by its task's id or that of its completion."""

    async def work(store: LogStore) -> bytes:
        return to_json(_shown(await traces.trace(store, task_named(task_id))))

    return await answer_from_log(api, work)


def _shown(trace: Trace) -> TraceShown:
    return {
        **_head(trace.generation),
        "object": "trace",
        "spans": [SpanShown(**span._asdict()) for span in trace.spans],
        "instance_id": trace.instance.instance_id if trace.instance else None,
        "ranks": _ranks(trace.instance) if trace.instance else [],
        "prefill": trace.prefill,
    }


def _head(row: GenerationRow) -> TraceHead:
    return {
        "task_id": row.task_id,
        "model_id": row.model_id,
        "key": row.key,
        "queued_at": row.queued_at,
        "ended_at": row.ended_at,
        "finish_reason": row.finish_reason,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "cached_tokens": row.cached_tokens,
        "error": row.error,
    }


def _ranks(instance: Instance) -> list[RankShown]:
    return [
        {
            "rank": shard.rank,
            "runner_id": shard.runner_id,
            "node_id": shard.node_id,
            "start_layer": shard.start_layer,
            "end_layer": shard.end_layer,
        }
        for shard in instance.shards
    ]
