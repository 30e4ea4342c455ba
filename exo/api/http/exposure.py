"""Whether others than this machine reach the API, and that they need a key then."""

import socket
from ipaddress import ip_address

from exo.bus.replica import Replica
from exo.domain.state import State
from exo.errors import Fatal


def is_exposed(listener: socket.socket) -> bool:
    """Whether a bound socket can be reached from other machines."""
    return not ip_address(listener.getsockname()[0]).is_loopback


def has_good_key(state: State) -> bool:
    """Whether there is a key that lets anybody in."""
    return any(key.revoked_at is None for key in state.keys.values())


async def refuse_without_key(replica: Replica, address: str) -> None:
    """Waits until a master has said which keys there are. Raises Fatal, saying what to do, where there is none."""
    await replica.wait_for(lambda _state: True, None)
    if not has_good_key(replica.state):
        raise Fatal(
            f"{address} can be reached from other machines, and there is no API key yet. Start the node without "
            "EXO_API_HOST, make a key with `exo keys create --scope admin` in a second window, and start it again with "
            "EXO_API_HOST. Or let everybody in who reaches it: `exo api --insecure`, or EXO_API_INSECURE=1"
        )
