"""Why a model went where it went, or went nowhere, in words with bytes."""

from collections.abc import Sequence

from exo.domain.placement.memory import Room, headroom_percent, share_bytes
from exo.domain.placement.request import Refused, RefusedCode, Share
from exo.domain.placement.survey import Survey

VLLM_ALONE = (
    "vLLM runs on one node alone: ask for one node and pipeline sharding. Over several machines it divides a model by "
    "its own means: EXO_RAY_NODES, in docs/settings.md"
)
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def chosen(found: Survey, shares: Sequence[Share]) -> str:
    """What was needed, what each node could give, and who was chosen."""
    figures = "; ".join(_figures(room) for room in found.rooms)
    return f"{_needs(found)}; {figures}; {_chosen(found, shares)}{_alone(found, shares)}"


def refused(found: Survey, refusals: Sequence[Refused], code: RefusedCode) -> str:
    """Why no group of nodes can take the model. `refusals`: the reason of each size of group."""
    card = found.request.card.model_id
    alone = found.request.nodes_least == 1
    closest = next(refusal.reason for refusal in refusals if refusal.code == code)
    if not alone:
        return f"{card} cannot be placed on {found.request.nodes_least} nodes or more: it {_needs(found)}; {closest}"
    figures = "; ".join(_figures(room) for room in found.rooms)
    text = f"{card} needs {size(found.needed)}, more than any node can give: {figures}"
    groups = [refusal.reason for refusal in refusals[1:]]
    if code != "insufficient_memory":
        return f"{text}. Over several nodes: {closest}"
    return f"{text}. Over several nodes: {groups[-1]}" if groups else text


def no_engine(found: Survey) -> str:
    """Who lacks the engine or the model."""
    lacking = [room.name for room in found.rooms if room.node.node_id in found.request.node_ids]
    who = f"of {', '.join(lacking)} not every one has" if lacking else "no node has"
    reasons = "; ".join(f"{room.name} {room.why_not}" for room in found.rooms if not room.can_run)
    return f"{who} both {found.request.card.model_id} and an engine that runs it ({found.request.runs_in}): {reasons}"


def too_few(found: Survey, wanted: int) -> str:
    """How many nodes could run the model."""
    able = len(found.able)
    return f"{wanted} nodes are asked for, and {able} ha{'s' if able == 1 else 've'} the engine and can get the model"


def together(group: Sequence[Room]) -> str:
    """What nodes can give together."""
    return f"{_names(group)}{' together' if len(group) > 1 else ''} can give {size(sum(room.usable for room in group))}"


def not_linked(group: Sequence[Room]) -> str:
    """That nodes do not reach each other in a ring."""
    return f"{together(group)}, but no measured links join them in a ring"


def share_too_large(ring: Sequence[Room], found: Survey) -> str:
    """That the sum would be enough, and some node's share of it is not."""
    each = ", ".join(f"{room.name} {size(room.usable)}" for room in ring)
    all_layers, sharding = found.request.card.layers, found.request.sharding
    if sharding == "tensor":
        needed = share_bytes(found.needed, sharding, len(ring), all_layers, all_layers)
        return f"each would need {size(needed)}, and they can give {each}"
    layer = share_bytes(found.needed, sharding, len(ring), 1, all_layers)
    return f"a layer needs {size(layer)}, and not every share fits its node: {each}"


def size(count: int) -> str:
    """Bytes as people read them: `7.70 GB`."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} bytes"


def _needs(found: Survey) -> str:
    card = found.request.card
    headroom = headroom_percent(found.request.runs_in) - 100
    cache = f"{size(card.kv_bytes(found.context))} KV cache for {found.context} tokens"
    return f"needs {size(found.needed)} ({size(card.weight_bytes)} weights, {cache}, {headroom} % headroom)"


def _figures(room: Room) -> str:
    if not room.can_run:
        return f"{room.name} {room.why_not}"
    held = "has it on disk" if room.held == 1 else f"has {room.held:.0%} of it on disk" if room.held else ""
    return f"{room.name} can give {size(room.usable)} and {held or 'would have to fetch it'}"


def _chosen(found: Survey, shares: Sequence[Share]) -> str:
    names = {room.node.node_id: room.name for room in found.rooms}
    hosts = [names[share.node.node_id] for share in shares]
    if len(shares) == 1:
        return f"{hosts[0]} was chosen"
    if found.request.sharding == "tensor":
        return f"{_listed(hosts)} were chosen, each with a slice of every layer"
    part = [
        f"{host} ({share.layers} layer{'s' if share.layers > 1 else ''}, {size(share.needed)})"
        for host, share in zip(hosts, shares, strict=True)
    ]
    return f"{_listed(part)} were chosen"


def _alone(found: Survey, shares: Sequence[Share]) -> str:
    """What was asked for, and is of no use to one node."""
    if len(shares) > 1 or found.request.backend == "ring":
        return ""
    return f", as a ring of one: a single node talks to nobody, so {found.request.backend} is not used"


def _names(group: Sequence[Room]) -> str:
    return _listed(sorted(room.name for room in group))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
