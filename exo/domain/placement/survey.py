"""What a placement is decided on: the request, and what each node can give it."""

from collections.abc import Set
from dataclasses import dataclass

from exo.domain.ids import InstanceId
from exo.domain.placement.memory import NOBODY, Room, context_of, needed_bytes, rooms
from exo.domain.placement.request import PlacementRequest
from exo.domain.placement.rings import RING_ORDER, Hops, best_links
from exo.domain.state import State


@dataclass(frozen=True, slots=True)
class Survey:
    """A request and the cluster, in figures."""

    request: PlacementRequest
    context: int
    """Tokens."""
    needed: int
    """Bytes, over all nodes of a group."""
    rooms: tuple[Room, ...]
    """Of every node, by node id."""
    hops: Hops

    @property
    def able(self) -> list[Room]:
        """Of the nodes that could run the model if it fitted."""
        return [room for room in self.rooms if room.can_run]


def survey(state: State, request: PlacementRequest, leaving: Set[InstanceId] = NOBODY) -> Survey:
    """The figures, once the instances in `leaving` are gone."""
    context = context_of(request)
    return Survey(
        request=request,
        context=context,
        needed=needed_bytes(request.card, context, request.runs_in),
        rooms=tuple(rooms(state, request, leaving)),
        hops=best_links([node for _, node in sorted(state.nodes.items())], RING_ORDER),
    )
