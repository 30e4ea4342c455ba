"""The names under which the API may be called where nobody needs a key.

A page of any site can have its own name stand for this machine's address (DNS rebinding). It is of the same origin
then, so that neither CORS nor a look at its origin holds it off; but `Host` tells by which name it came.
Litestar's own middleware wants the port in each name, and answers in the envelope of no API.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from exo.api.http.access import Headers
from exo.errors import Rejected

ANY = "*"


@dataclass(frozen=True, slots=True)
class Hosts:
    """What may stand in `Host` beside the names and addresses of the loopback interface."""

    names: frozenset[str]
    is_open: bool
    """Whether any name will do."""

    def check(self, headers: Headers) -> None:
        """Raises Rejected for another name. Browsers always send one; who sends none is no page."""
        sent = next((value for name, value in headers if name == b"host"), None)
        if self.is_open or sent is None:
            return
        host = host_in(sent.decode("latin-1"))
        if host not in self.names and not is_loopback(host):
            raise Rejected(
                f"this API does not go by the name '{host}': EXO_ALLOWED_HOSTS={host} allows it, or call localhost",
                code="foreign_host",
            )


def allowed_hosts(own: str, allowed: Sequence[str], *, is_exposed: bool) -> Hosts:
    """Those of an API that listens at `own`. One that others reach may be called by any name, unless some are set."""
    is_open = ANY in allowed or (is_exposed and not allowed)
    return Hosts(frozenset(host.lower() for host in (own, *allowed)), is_open)


def host_in(sent: str) -> str:
    """The name or address in a `Host`, without its port, in small letters; all of it where it is none."""
    try:
        host = urlsplit(f"//{sent}").hostname
    except ValueError:
        host = None
    return (host or sent).rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether a name or an address always stands for the machine that it is said on (RFC 6761)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
