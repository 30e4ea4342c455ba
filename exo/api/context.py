"""What the endpoints work with: one object, made at the process' start."""

import time
from dataclasses import dataclass, field

from litestar.handlers import BaseRouteHandler

from exo.api.feed import Feed
from exo.api.generations.generations import Generations
from exo.api.http.access import ANY_KEY, Access, Connection, Keys, access_of, current_address, current_key
from exo.api.http.hosts import Hosts
from exo.api.hub import Hub
from exo.api.loading import Loading
from exo.api.metrics.meters import Meters
from exo.api.readers import Readers
from exo.bus.client import Bus
from exo.bus.replica import Replica
from exo.config import Settings
from exo.domain.ids import ApiId, NodeId
from exo.domain.keys import Key
from exo.domain.node import NodeGauges
from exo.domain.state import State, host_of
from exo.errors import Rejected, Retryable

ROOM_LEAST = 32 * 2**20
"""Bytes that must be free for new work; a prompt and its answer need far less, but the disk is looked at every 2 s."""


@dataclass(slots=True)
class Api:
    """One API process, connected."""

    settings: Settings
    bus: Bus
    api_id: ApiId
    replica: Replica
    generations: Generations
    feed: Feed
    loading: Loading
    meters: Meters
    keys: Keys
    hosts: Hosts
    hub: Hub
    readers: Readers = field(default_factory=Readers)
    """Open streams that are no generations."""
    gauges: dict[NodeId, tuple[float, NodeGauges]] = field(default_factory=dict[NodeId, tuple[float, NodeGauges]])
    """Each node's last figures, and when they came by the monotonic clock."""

    @property
    def state(self) -> State:
        """State as this process knows it. Raises Retryable while no master has answered."""
        if not self.replica.is_live:
            raise Retryable("no master has answered yet: start `exo master`, or ask again in a moment")
        return self.replica.state

    async def check_access(self, connection: Connection, handler: BaseRouteHandler) -> None:
        """Before each request: finds out whose it is. Raises Rejected where it may not go on, and Retryable while
        nobody can tell."""
        current_address.set(connection.client.host if connection.client else "")
        access = access_of(handler)
        if access.scopes and (self.replica.is_live or not access.before_state):
            current_key.set(self._admit(connection, access))

    def check_known(self, connection: Connection) -> None:
        """Before somebody is told what there is. Raises as `check_access`, of whom any key would let in."""
        self._admit(connection, ANY_KEY)

    def _admit(self, connection: Connection, access: Access) -> Key | None:
        headers = connection.scope["headers"]
        key = self.keys.admit(self.state, headers, access)
        if key is None:
            self.hosts.check(headers)
        return key

    def check_room(self) -> None:
        """Raises Rejected where the disk that NATS and the log of the leading master are on is about to be full.

        NATS has to be started anew after a full disk, which `exo nats` does; better not to come to that.
        """
        _, gauges = self.gauges.get(self.replica.state.master or NodeId(""), (0.0, None))
        if gauges is not None and gauges.disk_free_bytes < ROOM_LEAST:
            host = host_of(self.replica.state, gauges.node_id)
            reason = f"the disk of {host} has {gauges.disk_free_bytes / 2**20:.0f} MB left: free some space there"
            raise Rejected(reason, code="insufficient_storage")

    def take_gauges(self, gauges: NodeGauges) -> None:
        """Keep a node's figures."""
        self.gauges[gauges.node_id] = (time.monotonic(), gauges)
