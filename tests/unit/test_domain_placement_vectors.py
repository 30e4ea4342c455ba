"""The decisions of `tests/vectors/placement.json`: from nodes, links, model and request to layers, or a refusal.

Sizes are of the vectors; a key that a vector lacks is not known. `expect_with_cap75` counts, since models fill at most
three quarters of memory that is shared with a GPU.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from exo.domain.ids import InstanceId, NodeId, RunnerId
from exo.domain.instance import Instance
from exo.domain.model_card import ModelCard
from exo.domain.node import Gpu, Holding, Link
from exo.domain.placement import Placement, PlacementRequest, Refused, instance_from, needed_bytes, place
from exo.domain.placement.previews import previews
from exo.domain.state import Node, State
from tests import builders

Vector = dict[str, Any]
FILE: dict[str, list[Vector]] = json.loads((Path(__file__).parents[1] / "vectors" / "placement.json").read_text())
SYSTEMS = {"metal": "darwin", "cuda": "linux"}
QUANTIZATIONS = {"bf16": "bfloat16", "fp16": "float16", None: "none"}
HEADS = 60
"""Divides by every number up to 6, for models whose number of KV heads is not told."""


def card_of(model: Vector) -> ModelCard:
    kv_heads = model.get("kv_heads") or HEADS
    quantization = model.get("quantization")
    return builders.card(
        f"{model.get('community', 'maker')}/model",
        layers=model["layers"],
        hidden_size=model["hidden_size"],
        heads=kv_heads,
        kv_heads=kv_heads,
        head_dim=1,
        weight_bytes=model["bytes"],
        context=1,
        quantization=QUANTIZATIONS.get(quantization, quantization),
        supports_tensor=model["supports_tensor"],
    )


def node_of(node: Vector, links: list[Vector], card: ModelCard) -> Node:
    held = node.get("downloaded", 0.0)
    facts = builders.facts(
        node["id"],
        system=SYSTEMS.get(node.get("gpu", ""), "linux"),
        memory_bytes=node["ram_total"],
        gpus=(Gpu(name=node["gpu"], total_bytes=0, unified=node["gpu"] == "metal"),) if node.get("gpu") else (),
        engines=tuple(node["engines"]),
        rdma_enabled=node.get("rdma_enabled"),
    )
    return builders.node(
        node["id"],
        Holding(card=card, status="ready" if held == 1 else "obtainable", held=held),
        facts=facts,
        available_bytes=node["ram_available"],
        links=tuple(link_of(link) for link in links if link["from"] == node["id"]),
    )


def link_of(link: Vector) -> Link:
    if link["kind"] == "rdma":
        return Link(to=link["to"], kind="rdma", device=f"rdma_{link['to']}")
    return Link(to=link["to"], kind=link["kind"], address=f"10.0.0.{ord(link['to'][-1]) % 100}")


def placed_on(node_id: str) -> Instance:
    """A model so small that it is in nobody's way but for being there."""
    card = card_of({"bytes": 1, "layers": 1, "hidden_size": 1, "kv_heads": 1, "supports_tensor": False})
    return builders.instance(builders.whole(card, node_id, node_id), instance_id=node_id)


def state_of(vector: Vector, card: ModelCard) -> State:
    nodes = [node_of(node, vector["links"], card) for node in vector["nodes"] if node.get("online", True)]
    instances = [placed_on(node_id) for node_id in vector.get("placed", [])]
    return builders.state(nodes, instances)


def request_of(vector: Vector, card: ModelCard) -> PlacementRequest:
    asked = vector["request"]
    return PlacementRequest(
        card=card,
        context=1,
        engine="vllm" if asked["engine"] == "vllm" else "mlx",
        sharding=asked["sharding"],
        backend="ring" if asked["engine"] == "vllm" else asked["engine"],
        min_nodes=asked["min_nodes"],
        node_ids=tuple(map(NodeId, asked.get("required_nodes", []))),
    )


def outcome(placement: Placement | Refused) -> Vector:
    if isinstance(placement, Refused):
        return {"refused": placement.code.removeprefix("insufficient_")}
    return {
        "layers": {share.node.node_id: share.layers for share in placement.shares},
        "sharding": placement.sharding,
        "engine": "vllm" if placement.engine == "vllm" else placement.backend,
    }


def expected(expect: Vector) -> Vector:
    if "refused" in expect:
        return {"refused": expect["refused"]}
    layers = dict(zip(expect["nodes"], expect["layers"], strict=True))
    return {"layers": layers, "sharding": expect["sharding"], "engine": expect["engine"]}


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: vector["id"])
def test_a_decision_is_the_expected_one(vector: Vector) -> None:
    card = card_of(vector["model"])
    expect = vector.get("expect_with_cap75", vector["expect"])
    accepted = [expected(expect), *(expected({**expect, **other}) for other in vector.get("accept", []))]
    placement = place(state_of(vector, card), request_of(vector, card))
    assert outcome(placement) in accepted, placement
    if "needed_bytes" in expect:
        engine = "vllm" if vector["request"]["engine"] == "vllm" else "mlx"
        assert needed_bytes(card, 0, engine) == expect["needed_bytes"]


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: vector["id"])
def test_the_shards_of_a_decision_cover_the_model_once(vector: Vector) -> None:
    card = card_of(vector["model"])
    placement = place(state_of(vector, card), request_of(vector, card))
    if isinstance(placement, Refused):
        assert placement.reason
        return
    ids = [RunnerId(f"r{rank}") for rank in range(len(placement.shares))]
    shards = instance_from(placement, card, InstanceId("i"), ids).shards
    assert [shard.rank for shard in shards] == list(range(len(shards)))
    if placement.sharding == "tensor":
        assert {(shard.start_layer, shard.end_layer) for shard in shards} == {(0, card.layers)}
    else:
        covered = [layer for shard in reversed(shards) for layer in range(shard.start_layer, shard.end_layer)]
        assert covered == list(range(card.layers))


@pytest.mark.parametrize("vector", FILE["previews"], ids=lambda vector: vector["id"])
def test_previews_offer_what_is_expected(vector: Vector) -> None:
    card = card_of(vector["model"])
    offered = [
        {
            "engine": "vllm" if preview.engine == "vllm" else preview.backend,
            "sharding": preview.sharding,
            "nodes": preview.nodes,
        }
        for preview in previews(state_of(vector, card), PlacementRequest(card, context=1))
        if preview.placement is not None
    ]
    for wanted in vector["expect"]["offered"]:
        assert any(wanted.items() <= one.items() for one in offered), (wanted, offered)
    for unwanted in vector["expect"]["not_offered"]:
        assert not any(unwanted.items() <= one.items() for one in offered), unwanted
