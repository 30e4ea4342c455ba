"""Nodes by what people call them."""

from exo.domain.state import Node, State
from exo.errors import Rejected


def find_node(state: State, name: str, param: str = "node_ids") -> Node:
    """A node by its id, the beginning of it, or its machine's name. Raises Rejected, about the parameter that named it,
    unless it is exactly one."""
    nodes = [node for _, node in sorted(state.nodes.items())]
    exact = [node for node in nodes if name in (node.node_id, node.facts.hostname)]
    found = exact or [node for node in nodes if name and node.node_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{node.node_id[:8]} ({node.facts.hostname})" for node in found or nodes) or "none"
    if found:
        reason = f"'{name}' is more than one node: say which by its id, of {there}"
        raise Rejected(reason, code="ambiguous_node", param=param)
    raise Rejected(f"'{name}' is no node; there are: {there}", code="node_not_found", param=param)
