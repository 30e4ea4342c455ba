"""Instances: placed, looked at, deleted."""

from typing import Annotated, Any, NotRequired

from litestar import Request, Response, delete, get, post
from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from exo.api.bodies.openapi import command, operation
from exo.api.bodies.strict import ModelName, Strict
from exo.api.cluster.commands import Wait, send
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.instances import find_instance, full_id
from exo.api.known.models import find_model
from exo.api.known.nodes import find_node
from exo.domain.instance import Instance
from exo.domain.limits import CONTEXT_MOST, NODES_MOST, SLOTS_MOST
from exo.domain.messages.commands import DeleteInstance, PlaceInstance
from exo.domain.runner_status import RunnerStatus
from exo.domain.shard import Backend, EngineName, Sharding
from exo.domain.state import Runner, State, generations_on, is_ready


class PlaceRequest(Strict):
    """The body of `POST /place_instance`."""

    model_id: Annotated[ModelName, Field(validation_alias=AliasChoices("model_id", "model"))]
    context: Annotated[int, Field(gt=0, le=CONTEXT_MOST)] | None = None
    slots: Annotated[int, Field(gt=0, le=SLOTS_MOST)] | None = None
    engine: EngineName | None = None
    sharding: Sharding = "pipeline"
    backend: Backend = "ring"
    min_nodes: Annotated[int, Field(gt=0, le=NODES_MOST)] = 1
    node_ids: Annotated[tuple[str, ...], Field(max_length=NODES_MOST)] = ()

    def to_command(self, state: State) -> PlaceInstance:
        """The command. Raises Rejected where a model or a node is not there."""
        return PlaceInstance(
            model_id=find_model(state, self.model_id).model_id,
            context=self.context,
            slots=self.slots,
            engine=self.engine,
            sharding=self.sharding,
            backend=self.backend,
            min_nodes=self.min_nodes,
            node_ids=tuple(find_node(state, name).node_id for name in self.node_ids),
        )


@post(
    "/place_instance",
    status_code=202,
    summary="Load a model",
    tags=["Cluster"],
    operation_class=command(body=PlaceRequest, example={"model_id": "SmolLM2-135M-Instruct", "slots": 4}),
)
async def place_instance(request: Request[Any, Any, Any], api: Api, wait: Wait = None) -> Response[bytes]:
    """Place one more instance of a model on the nodes that have room for it."""
    body = PlaceRequest.model_validate_json(await request.body())
    placing = body.to_command(api.state)
    api.check_room()
    return await send(api, placing, wait)


@delete(
    "/instance/{instance_id:str}",
    status_code=202,
    summary="Unload a model",
    tags=["Cluster"],
    operation_class=command(),
)
async def delete_instance(instance_id: str, api: Api, wait: Wait = None) -> Response[bytes]:
    """Take an instance away, and cancel what runs on it."""
    return await send(api, DeleteInstance(instance_id=full_id(api.state, instance_id)), wait)


class RunnerShown(TypedDict):
    """A runner as State has it, and while it reads its weights, how far it is."""

    runner_id: str
    instance_id: str
    node_id: str
    status: RunnerStatus
    since: float
    process: str
    failures: int
    retry_at: float
    loaded_layers: NotRequired[int]
    total_layers: NotRequired[int]


class InstanceShown(TypedDict):
    """An instance, its runners by rank, how many generations it has, and who computes their prompts, if another."""

    instance: Instance
    runners: list[RunnerShown]
    ready: bool
    running: int
    prefill_id: str | None


class InstancesShown(TypedDict):
    """All of them, by id."""

    instances: list[InstanceShown]


@get("/instance", summary="All instances", tags=["Cluster"], operation_class=operation(answer=InstancesShown))
async def list_instances(api: Api) -> Response[bytes]:
    """Every instance, as `/instance/{id}` shows it."""
    found = [_shown(api, instance) for _, instance in sorted(api.state.instances.items())]
    answer: InstancesShown = {"instances": found}
    return json_response(answer)


@get(
    "/instance/{instance_id:str}",
    summary="One instance",
    tags=["Cluster"],
    operation_class=operation(answer=InstanceShown),
)
async def show_instance(instance_id: str, api: Api) -> Response[bytes]:
    """An instance with its runners' statuses."""
    return json_response(_shown(api, find_instance(api.state, instance_id)))


def _shown(api: Api, instance: Instance) -> InstanceShown:
    state = api.state
    link = state.prefill_links.get(instance.instance_id)
    return {
        "instance": instance,
        "runners": [_runner(api, state.runners[runner_id]) for runner_id in instance.runner_ids],
        "ready": is_ready(state, instance),
        "running": len(generations_on(state, instance.instance_id)),
        "prefill_id": link.prefill_id if link else None,
    }


def _runner(api: Api, runner: Runner) -> RunnerShown:
    shown = RunnerShown(**runner.model_dump())
    if layers := api.loading.layers_of(runner):
        shown["loaded_layers"], shown["total_layers"] = layers
    return shown
