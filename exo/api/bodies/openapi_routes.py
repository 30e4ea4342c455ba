"""Where the OpenAPI document is: as JSON and YAML, without a page. Litestar's pages load their scripts from servers of
others, which shows nothing where there is no internet, and tells them who reads it where there is."""

from collections.abc import Mapping
from typing import Any

from litestar import Response, Router
from litestar.enums import MediaType
from litestar.exceptions import NotFoundException
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin

RENDERED = (
    # A browser shows this type, and would save OpenAPI's own.
    JsonRenderPlugin(path=("/openapi.json", "/"), media_type=MediaType.JSON),
    YamlRenderPlugin(),
)


def document_router(opt: Mapping[str, object]) -> Router:
    """Where Litestar adds the routes. `opt`: what they say of themselves."""
    return Router("/schema", route_handlers=[], after_request=_refuse_page, include_in_schema=False, opt=opt)


async def _refuse_page(response: Response[Any]) -> Response[Any]:
    """Litestar has a page for what is not there; here it is an error like any other."""
    if response.status_code == NotFoundException.status_code:
        raise NotFoundException
    return response
