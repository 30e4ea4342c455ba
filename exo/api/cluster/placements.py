"""`GET /instance/placement` and `POST /instance`: where one way of placing a model would put it, and exactly that."""

from typing import Annotated, Any

from litestar import Request, Response, get, post
from litestar.params import QueryParameter
from pydantic import Field
from typing_extensions import TypedDict

from exo.api.bodies.openapi import command, operation
from exo.api.bodies.strict import ModelName, Strict
from exo.api.cluster.commands import Wait, send
from exo.api.cluster.previews import Context, Model, ShardPreview, shards
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.models import find_model
from exo.api.known.nodes import find_node
from exo.domain.decide.instances import choose
from exo.domain.limits import CONTEXT_MOST, NODES_MOST, SLOTS_MOST
from exo.domain.messages.commands import PlaceInstance
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import State, names_of
from exo.errors import Rejected

EXAMPLE = {"instance": {"model_id": "SmolLM2-135M-Instruct", "node_ids": ["studio"]}}


class ExactInstance(Strict):
    """An instance on exactly these nodes. How a model is cut over them, the cluster decides."""

    model_id: ModelName
    node_ids: Annotated[list[str], Field(min_length=1, max_length=NODES_MOST)]
    engine: EngineName | None = None
    sharding: Sharding = "pipeline"
    backend: Backend = "ring"
    context: Annotated[int, Field(gt=0, le=CONTEXT_MOST)] | None = None
    slots: Annotated[int, Field(gt=0, le=SLOTS_MOST)] | None = None

    def to_command(self, state: State) -> PlaceInstance:
        """The command. Raises Rejected where the model or a node is not there."""
        node_ids = tuple(dict.fromkeys(find_node(state, name).node_id for name in self.node_ids))
        return PlaceInstance(
            model_id=find_model(state, self.model_id).model_id,
            context=self.context,
            slots=self.slots,
            engine=self.engine,
            sharding=self.sharding,
            backend=self.backend,
            min_nodes=len(node_ids),
            node_ids=node_ids,
        )


class ExactPlacement(Strict):
    """The body of `POST /instance`: what `GET /instance/placement` gave under the same name."""

    instance: ExactInstance


class PlacementAnswer(TypedDict):
    """Where a model would go."""

    instance: ExactInstance
    needed_bytes: int
    shards: list[ShardPreview]
    reason: str


Slots = Annotated[int | None, QueryParameter(name="slots", gt=0, le=SLOTS_MOST, description="As in /place_instance")]
Engine = Annotated[EngineName | None, QueryParameter(name="engine", description="Absent: the best that has a place")]
ShardingName = Annotated[Sharding, QueryParameter(name="sharding", description="How it is cut over several nodes")]
BackendName = Annotated[Backend, QueryParameter(name="backend", description="How the ranks talk")]
MinNodes = Annotated[int, QueryParameter(name="min_nodes", gt=0, le=NODES_MOST, description="The fewest nodes")]


@get(
    "/instance/placement",
    summary="Where a model would go",
    tags=["Cluster"],
    operation_class=operation(answer=PlacementAnswer),
)
async def show_placement(
    model: Model,
    api: Api,
    context: Context = None,
    slots: Slots = None,
    engine: Engine = None,
    sharding: ShardingName = "pipeline",
    backend: BackendName = "ring",
    min_nodes: MinNodes = 1,
) -> Response[bytes]:
    """The nodes that `POST /place_instance` would choose now, or its refusal. Nothing is placed by it."""
    state = api.state
    placing = PlaceInstance(
        model_id=find_model(state, model).model_id,
        context=context,
        slots=slots,
        engine=engine,
        sharding=sharding,
        backend=backend,
        min_nodes=min_nodes,
    )
    _, placement = choose(state, placing)
    answer: PlacementAnswer = {
        "instance": ExactInstance(
            model_id=placing.model_id,
            node_ids=list(placement.node_ids),
            engine=placement.engine,
            sharding=placement.sharding,
            backend=placement.backend,
            context=placement.context,
            slots=placement.slots,
        ),
        "needed_bytes": sum(share.needed for share in placement.shares),
        "shards": shards(placement, names_of(state.nodes.values())),
        "reason": placement.reason,
    }
    return json_response(answer)


@post(
    "/instance",
    status_code=202,
    summary="Load a model on exactly these nodes",
    tags=["Cluster"],
    operation_class=command(body=ExactPlacement, example=EXAMPLE),
)
async def create_instance(request: Request[Any, Any, Any], api: Api, wait: Wait = None) -> Response[bytes]:
    """Place one more instance on the nodes that are named, and on no others."""
    body = ExactPlacement.model_validate_json(await request.body())
    placing = body.instance.to_command(api.state)
    _check_exact(api.state, placing)
    api.check_room()
    return await send(api, placing, wait)


def _check_exact(state: State, placing: PlaceInstance) -> None:
    """Raises Rejected where these nodes are not enough: a placement takes more of them then."""
    _, placement = choose(state, placing)
    if len(placement.node_ids) > len(placing.node_ids):
        reason = f"the model does not fit on these nodes alone; with others it would: {placement.reason}"
        raise Rejected(reason, code="insufficient_memory", param="instance.node_ids")
