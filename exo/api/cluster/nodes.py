"""`GET /node_id` and `GET /capabilities`: which node this is, and what each node can run."""

import time
from itertools import chain, repeat

from litestar import Response, get
from typing_extensions import TypedDict

from exo.api.bodies.openapi import operation
from exo.api.cluster.health import FRESH
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.domain.node import EngineFacts, Gpu, GpuGauges, MachineKind, NodeGauges
from exo.domain.shard import EngineName
from exo.domain.state import Node, names_of
from exo.node.identity import node_id


class EngineCapability(TypedDict):
    """One engine on a node. `problem` says why it does not run, or not on the node's GPU, and what to do about it."""

    name: EngineName
    runs: bool
    device: str
    versions: dict[str, str]
    problem: str


class GpuCapability(TypedDict):
    """One GPU, and how it is doing; null for what is not known. With unified memory its bytes are the node's."""

    name: str
    unified: bool
    total_bytes: int
    free_bytes: int | None
    utilization: float | None
    temperature_c: float | None
    power_w: float | None


class NodeCapabilities(TypedDict):
    """What one node can run, and on what. `engines`: those that run, the preferred one first; `engine_facts`: all."""

    node_id: str
    name: str
    system: str
    machine: str
    kind: MachineKind
    chip: str
    memory_bytes: int
    gpus: list[GpuCapability]
    gpu_problem: str
    engines: list[EngineName]
    engine_facts: list[EngineCapability]
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
        "nodes": [_of(node, names[node.node_id], _gauges(api, node)) for node in nodes],
    }
    return json_response(found)


def _gauges(api: Api, node: Node) -> NodeGauges | None:
    seen, gauges = api.gauges.get(node.node_id, (0.0, None))
    return gauges if time.monotonic() - seen < FRESH else None


def _of(node: Node, name: str, gauges: NodeGauges | None) -> NodeCapabilities:
    facts = node.facts
    live = gauges.gpus if gauges is not None else ()
    return {
        "node_id": node.node_id,
        "name": name,
        "system": facts.system,
        "machine": facts.machine.model,
        "kind": facts.machine.kind,
        "chip": facts.chip,
        "memory_bytes": facts.memory_bytes,
        "gpus": [_gpu(gpu, now) for gpu, now in zip(facts.gpus, chain(live, repeat(GpuGauges())), strict=False)],
        "gpu_problem": facts.gpu_problem,
        "engines": list(facts.engines),
        "engine_facts": [_engine(one) for one in facts.engine_facts],
        "version": facts.version,
    }


def _engine(facts: EngineFacts) -> EngineCapability:
    return {
        "name": facts.name,
        "runs": facts.runs,
        "device": facts.device,
        "versions": {package.name: package.version for package in facts.packages},
        "problem": facts.problem,
    }


def _gpu(gpu: Gpu, now: GpuGauges) -> GpuCapability:
    return {
        "name": gpu.name,
        "unified": gpu.unified,
        "total_bytes": gpu.total_bytes,
        "free_bytes": now.free_bytes,
        "utilization": now.utilization,
        "temperature_c": now.temperature_c,
        "power_w": now.power_w,
    }
