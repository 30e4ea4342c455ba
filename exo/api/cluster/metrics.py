"""`GET /metrics`: for Prometheus."""

from pathlib import Path

from litestar import Response, get
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.metrics.present import Present
from exo.bus.events import bounds
from exo.errors import Retryable


@get(
    "/metrics",
    summary="Figures for Prometheus",
    tags=["Cluster"],
    operation_class=operation(media_types=("text/plain",)),
)
async def show_metrics(api: Api) -> Response[bytes]:
    """What this process has counted, and what is so in the cluster now, in Prometheus' text format."""
    now = CollectorRegistry()
    now.register(await _present(api))
    body = generate_latest(api.meters.registry) + generate_latest(now)
    return Response(body, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


async def _present(api: Api) -> Present:
    return Present(
        state=api.replica.state,
        log_end=await _log_end(api),
        wal_bytes=_wal_bytes(api.settings.log_file),
        is_connected=api.bus.is_connected,
        reconnects=api.bus.reconnects,
        open_generations=len(api.generations),
    )


def _wal_bytes(log_file: Path) -> int | None:
    """None where this node has no log; 0 where all of it is in the file itself."""
    if not log_file.exists():
        return None
    wal = log_file.with_name(f"{log_file.name}-wal")
    return wal.stat().st_size if wal.exists() else 0


async def _log_end(api: Api) -> int | None:
    if not api.bus.is_connected:
        return None
    try:
        _, last = await bounds(api.bus)
    except Retryable:
        return None
    return last
