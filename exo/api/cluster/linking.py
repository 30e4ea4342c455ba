"""Which instance computes the prompts of which other."""

from typing import Annotated, Any

from litestar import Request, Response, delete, post
from pydantic import StringConstraints

from exo.api.bodies.openapi import command
from exo.api.bodies.strict import Strict
from exo.api.cluster.commands import Wait, send
from exo.api.context import Api
from exo.api.known.instances import full_id
from exo.domain.messages.commands import LinkInstances, UnlinkInstances


class LinkRequest(Strict):
    """The body of `POST /instance/{id}/prefill`."""

    prefill_id: Annotated[str, StringConstraints(min_length=1)]


@post(
    "/instance/{instance_id:str}/prefill",
    status_code=202,
    summary="Prefill on another instance",
    tags=["Cluster"],
    operation_class=command(body=LinkRequest, example={"prefill_id": "77aa1b"}),
)
async def link_instances(
    instance_id: str, request: Request[Any, Any, Any], api: Api, wait: Wait = None
) -> Response[bytes]:
    """Have another instance of the same model compute the prompts that this one answers."""
    body = LinkRequest.model_validate_json(await request.body())
    linking = LinkInstances(prefill_id=full_id(api.state, body.prefill_id), decode_id=full_id(api.state, instance_id))
    return await send(api, linking, wait)


@delete(
    "/instance/{instance_id:str}/prefill",
    status_code=202,
    summary="Prefill on the instance itself again",
    tags=["Cluster"],
    operation_class=command(),
)
async def unlink_instances(instance_id: str, api: Api, wait: Wait = None) -> Response[bytes]:
    """Have an instance compute its prompts by itself again."""
    return await send(api, UnlinkInstances(decode_id=full_id(api.state, instance_id)), wait)
