"""`POST /ollama/api/pull`: brings a model onto a node's disk, and tells how far it is."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from litestar import Request, Response, post
from litestar.response import Stream
from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.bodies.openapi import JSON, operation
from exo.api.bodies.strict import Unsupported
from exo.api.cluster.commands import carry_out
from exo.api.context import Api
from exo.api.generations import sse
from exo.api.http.dialects import ollama_error
from exo.api.http.json_response import written_json
from exo.api.http.problem import Problem
from exo.api.ollama.descriptions import digest_of
from exo.api.ollama.lines import MEDIA_TYPE
from exo.api.ollama.named import Named
from exo.api.ollama.names import find_tagged
from exo.api.ollama.pulling import Pull, node_for, pull_on
from exo.domain.ids import NodeId
from exo.domain.messages.commands import StartDownload
from exo.domain.model_card import ModelCard
from exo.errors import Rejected

DECIDED = 10.0
"""Seconds that a master has to decide on it."""
SILENCE = 10.0
"""Seconds after which the last line comes again, as a sign of life."""


class PullRequest(Named):
    """The body of `POST /ollama/api/pull`."""

    stream: bool | None = None
    insecure: Unsupported = None
    username: Unsupported = None
    password: Unsupported = None


class Progress(TypedDict):
    """The last line of a stream, and all of an answer in one piece."""

    status: str


@post(
    "/ollama/api/pull",
    status_code=200,
    summary="Bring a model onto a node's disk",
    tags=["Ollama"],
    operation_class=operation(
        body=PullRequest,
        example={"model": "SmolLM2-135M-Instruct"},
        answer=Progress,
        media_types=(JSON, MEDIA_TYPE),
    ),
)
async def pull_model(request: Request[Any, Any, Any], api: Api) -> Response[bytes] | Stream:
    """Lines that tell how far it is; with `stream` false one, when it is there. It goes on when the client leaves."""
    body = PullRequest.model_validate_json(await request.body())
    card = find_tagged(api.state, body.wanted)
    node_id = node_for(api.state, card)
    if node_id is not None:
        api.check_room()
        download = StartDownload(node_id=node_id, model_id=card.model_id)
        await carry_out(api, download, DECIDED, done={"already_requested", "already_on_disk"})
    if body.stream is not False:
        return sse.event_stream(_lines(api, node_id, card), MEDIA_TYPE)
    async with aclosing(_pulls(api, node_id, card)) as pulls:
        async for one in pulls:
            if problem := _problem(one, card):
                raise Rejected(problem.message, code=problem.code)
    return written_json(_line("success"))


async def _pulls(api: Api, node_id: NodeId | None, card: ModelCard) -> AsyncGenerator[Pull]:
    """Each step on the way; the last one is no running one."""
    last = Pull("there", held=1.0) if node_id is None else pull_on(api.state, node_id, card)
    yield last
    while node_id is not None and last.status == "running":
        last = await _next(api, node_id, card, last)
        yield last


async def _next(api: Api, node_id: NodeId, card: ModelCard, last: Pull) -> Pull:
    await api.replica.wait_for(lambda state: pull_on(state, node_id, card) != last, None)
    return pull_on(api.state, node_id, card)


async def _lines(api: Api, node_id: NodeId | None, card: ModelCard) -> AsyncGenerator[bytes]:
    yield _line("pulling manifest") + b"\n"
    last = Pull("running")
    async with aclosing(api.readers.read(_pulls(api, node_id, card), SILENCE)) as pulls:
        async for one in pulls:
            last = last if one is None else one
            if problem := _problem(last, card):
                yield ollama_error(problem) + b"\n"
                return
            yield _share(last, card) + b"\n"
            if last.status == "there":
                yield _line("success") + b"\n"
                return


def _problem(pull: Pull, card: ModelCard) -> Problem | None:
    if pull.status != "failed":
        return None
    return Problem("model_unavailable", f"{card.model_id} could not be had: {pull.reason}")


def _share(pull: Pull, card: ModelCard) -> bytes:
    """Bytes, by the size of the weights as they are loaded."""
    digest, total = digest_of(card.model_id), card.weight_bytes
    return _line(f"pulling {digest[:12]}", digest=f"sha256:{digest}", total=total, completed=int(total * pull.held))


def _line(status: str, **fields: object) -> bytes:
    return to_json({"status": status, **fields})
