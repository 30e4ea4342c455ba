"""Ranks that meet by `mlx.distributed`, which is told by environment variables and files who they are."""

import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generation_stream

from exo.domain.shard import Shard
from exo.errors import Fatal, Retryable
from exo.runner.engines.mlx.ranks import GroupRanks
from exo.runner.engines.mlx.sharding.cut import cut
from exo.runner.engines.mlx.weights import Cut
from exo.runner.engines.ranks import Peers


class Group:
    """The ranks of one model, met."""

    def __init__(self, peers: Peers) -> None:
        """Waits for all of them, without end. Raises Fatal where this machine lacks the backend, and Retryable."""
        if not mx.distributed.is_available(peers.backend):
            raise Fatal(f"MLX has no {peers.backend} on this machine")
        with _told(peers):
            try:
                self._group = mx.distributed.init(strict=True, backend=peers.backend)
            except RuntimeError as error:
                raise Retryable(f"rank {peers.rank} did not meet the others over {peers.backend}: {error}") from error
        self.ranks = GroupRanks(self._group, generation_stream)

    def cut(self, shard: Shard) -> Cut:
        """What makes a model this rank's part of it."""
        return partial(cut, shard=shard, group=self._group)


@contextmanager
def _told(peers: Peers) -> Generator[None]:
    """Sets the environment that `mlx.distributed.init` reads. Its files are there for as long as it does."""
    with tempfile.TemporaryDirectory(prefix="exo-ranks-") as folder:
        os.environ.update(variables(peers, Path(folder)))
        yield


def variables(peers: Peers, folder: Path) -> dict[str, str]:
    """MLX's documentation of distributed communication has their formats."""
    hosts = folder / "ring.json"
    hosts.write_text(json.dumps([[address] for address in peers.addresses]))
    devices = folder / "devices.json"
    devices.write_text(json.dumps([[device or None for device in row] for row in peers.rdma_devices]))
    return {
        "MLX_RANK": str(peers.rank),
        "MLX_HOSTFILE": str(hosts),
        "MLX_IBV_DEVICES": str(devices),
        "MLX_JACCL_COORDINATOR": peers.coordinator,
    }
