"""Which instance computes the prompts of another, as State has it, and where that one is reached."""

from exo.domain.ids import InstanceId
from exo.domain.instance import Instance
from exo.domain.links import LOOPBACK
from exo.domain.placement.rings import RING_ORDER, best_links
from exo.domain.prefill import PrefillSource
from exo.domain.state import State, is_ready


def source_for(state: State, decode_id: InstanceId) -> PrefillSource | None:
    """Who may be asked for the KV state of an instance's prompts now; None: it computes them itself."""
    link = state.prefill_links.get(decode_id)
    decode = state.instances.get(decode_id)
    prefill = state.instances.get(link.prefill_id) if link else None
    if decode is None or prefill is None or not is_ready(state, prefill):
        return None
    host = host_for(state, decode, prefill)
    return PrefillSource(instance=prefill.instance_id, host=host) if host else None


def host_for(state: State, decode: Instance, prefill: Instance) -> str | None:
    """The address at which one instance of one rank reaches another, over the best link; None: there is none."""
    here, there = decode.node_ids[0], prefill.node_ids[0]
    if here == there:
        return LOOPBACK
    if here not in state.nodes or there not in state.nodes:
        return None
    link = best_links([state.nodes[here], state.nodes[there]], RING_ORDER).links.get((here, there))
    return link.address if link else None


def prefill_ids(state: State) -> frozenset[InstanceId]:
    """The instances that compute prompts for others."""
    return frozenset(link.prefill_id for link in state.prefill_links.values())
