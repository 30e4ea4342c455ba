"""How many files this process may have open: each connection of a client is one."""

import logging
import resource

from exo.api.http.connection import Connection

logger = logging.getLogger(__name__)

OTHERS = 256
"""Files that are no connections of clients. Together they are 4,096, which is all that many systems allow."""


def raise_file_limit() -> None:
    """Have the system allow a file for each connection that may be open; what it allows by default is often 1,024, or
    256. Where an administrator allows less, this says so."""
    wanted = Connection.connections_most + OTHERS
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _covers(allowed, wanted):
        return
    reached = wanted if _covers(most, wanted) else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (reached, most))
    if reached < wanted:
        logger.warning(
            "this process may have %d files open, which is less than the %d connections that it would take: raise the "
            "limit (`ulimit -Hn`) if that many clients come",
            reached,
            Connection.connections_most,
        )


def _covers(limit: int, wanted: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= wanted
