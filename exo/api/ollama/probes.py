"""What Ollama's clients ask first: whether anybody is there, and of which version."""

from litestar import MediaType, Response, get
from typing_extensions import TypedDict

from exo import __version__
from exo.api.bodies.openapi import operation
from exo.api.http.json_response import json_response

ALIVE = "Ollama is running"
"""Clients look for these words."""
TEXT = "text/plain"


class Version(TypedDict):
    """exo's own."""

    version: str


@get(
    "/ollama",
    summary="Whether somebody is there",
    tags=["Ollama"],
    operation_class=operation(media_types=(TEXT,)),
)
async def show_alive() -> Response[str]:
    """The words that Ollama says."""
    return Response(ALIVE, media_type=MediaType.TEXT)


@get(
    "/ollama/api/version",
    summary="The version",
    tags=["Ollama"],
    operation_class=operation(answer=Version),
)
async def show_version() -> Response[bytes]:
    """That of exo."""
    answer: Version = {"version": __version__}
    return json_response(answer)
