"""How far a model is on its way onto a node's disk, by State alone. Pure."""

from dataclasses import dataclass
from typing import Literal

from exo.domain.ids import NodeId
from exo.domain.model_card import ModelCard
from exo.domain.state import Node, State, download_key


@dataclass(frozen=True, slots=True)
class Pull:
    """One look at it."""

    status: Literal["running", "there", "failed"]
    held: float = 0.0
    """The part that has come."""
    reason: str = ""
    """Why it failed."""


def node_for(state: State, card: ModelCard) -> NodeId | None:
    """The node that a model is to be brought onto, or is on its way to: of those that can get it, the one with most
    memory free. None where none can, or one has it."""
    if any(_status(node, card) == "ready" for node in state.nodes.values()):
        return None
    nodes = [node for node in state.nodes.values() if _status(node, card) is not None]
    known = {
        one.node_id for one in state.downloads.values() if one.model_id == card.model_id and one.status != "failed"
    }
    nodes.sort(key=lambda node: (node.node_id not in known, -node.available_bytes, node.node_id))
    return nodes[0].node_id if nodes else None


def pull_on(state: State, node_id: NodeId, card: ModelCard) -> Pull:
    """How far it is."""
    node = state.nodes.get(node_id)
    if node is None:
        return Pull("failed", reason="its node was lost")
    holding = node.holdings.get(card.model_id)
    if holding is not None and holding.status == "ready":
        return Pull("there", held=1.0)
    download = state.downloads.get(download_key(node_id, card.model_id))
    if download is None:
        return Pull("failed", reason="it was taken back")
    held = holding.held if holding is not None else 0.0
    return Pull("failed", reason=download.reason) if download.status == "failed" else Pull("running", held)


def _status(node: Node, card: ModelCard) -> str | None:
    holding = node.holdings.get(card.model_id)
    return None if holding is None else holding.status
