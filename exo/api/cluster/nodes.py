"""`GET /node_id` and `GET /capabilities`: which node this is, and what each node can run."""

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.domain.node import Gpu
from exo.domain.shard import EngineName
from exo.domain.state import Node, names_of
from exo.node.identity import node_id


class NodeCapabilities(TypedDict):
    """What one node can run, and on what."""

    node_id: str
    name: str
    system: str
    chip: str
    memory_bytes: int
    gpus: list[Gpu]
    engines: list[EngineName]
    version: str


class Capabilities(TypedDict):
    """What the cluster can run."""

    vllm_available: bool
    engines: list[EngineName]
    nodes: list[NodeCapabilities]


@get("/node_id", summary="The node of this API", tags=["Cluster"], operation_class=operation(answer=str))
async def show_node_id(api: Api) -> Response[bytes]:
    """The id of the node whose home this process has, as a JSON string."""
    return json_response(node_id(api.settings.home))


@get("/capabilities", summary="What nodes can run", tags=["Cluster"], operation_class=operation(answer=Capabilities))
async def show_capabilities(api: Api) -> Response[bytes]:
    """Engines and devices of each node, and the engines of all together."""
    nodes = [node for _, node in sorted(api.state.nodes.items())]
    names = names_of(nodes)
    engines: list[EngineName] = list(dict.fromkeys(engine for node in nodes for engine in node.facts.engines))
    found: Capabilities = {
        "vllm_available": "vllm" in engines,
        "engines": engines,
        "nodes": [_of(node, names[node.node_id]) for node in nodes],
    }
    return json_response(found)


def _of(node: Node, name: str) -> NodeCapabilities:
    facts = node.facts
    return {
        "node_id": node.node_id,
        "name": name,
        "system": facts.system,
        "chip": facts.chip,
        "memory_bytes": facts.memory_bytes,
        "gpus": list(facts.gpus),
        "engines": list(facts.engines),
        "version": facts.version,
    }
