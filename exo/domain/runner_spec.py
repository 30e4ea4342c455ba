"""What a runner is told at its start, as one line of JSON on standard input."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from exo.domain.base import Frozen
from exo.domain.instance import Instance
from exo.domain.ray import RayCluster
from exo.domain.shard import Shard


class RunnerSpec(Frozen):
    """Everything that a runner knows of the world before it is connected."""

    process: str
    """Which start of the runner this is."""
    instance: Instance
    shard: Shard
    folder: str
    """Where the model lies."""
    cache_dir: str
    nats_url: str
    cluster: str
    log_level: str
    log_format: Literal["text", "json"] = "text"
    step_timeout: PositiveFloat = 60.0
    threads: PositiveInt = 1
    """Most threads to compute with on a CPU: this runner's part of the cores."""
    ray: RayCluster | None = None
    """What vLLM divides the model over; None: this machine alone."""


class RunnerShare(Frozen):
    """A later line: the part of the cores has changed, because a runner came or went."""

    threads: PositiveInt
