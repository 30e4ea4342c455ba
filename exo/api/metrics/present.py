"""What is so now, as metric families: of State, of the log, of the connection to NATS."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from exo import __version__
from exo.domain.instance import Instance
from exo.domain.runner_status import Failed
from exo.domain.state import State, is_ready


@dataclass(frozen=True, slots=True)
class Present:
    """The figures, and the collector that gives them."""

    state: State
    log_end: int | None
    """The last position that NATS has; None where it cannot be asked."""
    wal_bytes: int | None
    """None where this node has no log."""
    is_connected: bool
    reconnects: int
    open_generations: int

    def collect(self) -> Iterator[Metric]:
        """One family a figure; none for what is not known."""
        yield InfoMetricFamily("exo_build", "Version of this process", {"version": __version__})
        yield GaugeMetricFamily("exo_open_generations", "Generations read by this process", self.open_generations)
        yield GaugeMetricFamily("exo_nats_connected", "1: NATS can be reached", int(self.is_connected))
        yield CounterMetricFamily("exo_nats_reconnects", "Connections to NATS after the first", self.reconnects)
        yield GaugeMetricFamily("exo_log_position", "Last event that this process has folded", self.state.position)
        if self.log_end is not None:
            lag = max(0, self.log_end - self.state.position)
            yield GaugeMetricFamily("exo_log_lag_events", "Events in NATS after that", lag)
        if self.wal_bytes is not None:
            yield GaugeMetricFamily("exo_log_wal_bytes", "Write-ahead log of this node's event log", self.wal_bytes)
        yield from _of(self.state)


def _of(state: State) -> Iterator[Metric]:
    yield GaugeMetricFamily("exo_nodes", "Nodes of the cluster", len(state.nodes))
    placed = Counter((one.model_id, status_of(state, one)) for one in state.instances.values())
    yield _gauge("exo_instances", "Instances", ("model_name", "status"), placed)
    models = {one.model_id for one in state.instances.values()} | {one.model_id for one in state.generations.values()}
    waiting, running = dict.fromkeys(models, 0), dict.fromkeys(models, 0)
    for generation in state.generations.values():
        side = waiting if generation.instance_id is None else running
        side[generation.model_id] += 1
    for name, text, found in (
        ("vllm:num_requests_waiting", "Generations in the queue", waiting),
        ("vllm:num_requests_running", "Generations given to an instance", running),
    ):
        yield _gauge(name, text, ("model_name",), {(model_id,): count for model_id, count in found.items()})


def status_of(state: State, instance: Instance) -> str:
    """`ready`, `failed` where a runner waits to be started again, else `starting`."""
    if is_ready(state, instance):
        return "ready"
    failed = any(isinstance(state.runners[one].status, Failed) for one in instance.runner_ids)
    return "failed" if failed else "starting"


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
