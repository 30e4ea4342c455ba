"""Who leads: one key with a time to live. For liveness only; what makes writing safe is the fence in `events`."""

from contextlib import suppress

from nats.errors import Error as NatsError
from nats.js.errors import KeyWrongLastSequenceError

from exo.bus.client import Bus
from exo.bus.streams import LEASE
from exo.domain.ids import NodeId

KEY = "master"


class Lease:
    """One master's view of the lease."""

    def __init__(self, bus: Bus, node_id: NodeId) -> None:
        self._bus = bus
        self._node_id = node_id
        self._revision: int | None = None

    async def acquire(self) -> bool:
        """Whether the lease is this master's now. One that an earlier process of this node left is taken over."""
        try:
            bucket = await self._bus.js.key_value(LEASE)
            try:
                self._revision = await bucket.create(KEY, self._node_id.encode())
            except KeyWrongLastSequenceError:
                entry = await bucket.get(KEY)
                if entry.value != self._node_id.encode():
                    return False
                self._revision = await bucket.update(KEY, self._node_id.encode(), last=entry.revision)
        except (NatsError, TimeoutError):
            return False
        return True

    async def renew(self) -> bool:
        """Whether the lease is still this master's, and for another LEASE_TTL."""
        try:
            bucket = await self._bus.js.key_value(LEASE)
            self._revision = await bucket.update(KEY, self._node_id.encode(), last=self._revision)
        except (NatsError, TimeoutError):
            return False
        return True

    async def release(self) -> None:
        """Let the next one have it at once. Leaves it alone where it is another's."""
        revision, self._revision = self._revision, None
        if revision is None:
            return
        with suppress(NatsError, TimeoutError):
            bucket = await self._bus.js.key_value(LEASE)
            await bucket.delete(KEY, last=revision)


async def holder(bus: Bus) -> NodeId | None:
    """The node whose master leads now; None where there is none or NATS cannot be asked."""
    try:
        entry = await (await bus.js.key_value(LEASE)).get(KEY)
    except (NatsError, TimeoutError):
        return None
    return NodeId((entry.value or b"").decode()) or None
