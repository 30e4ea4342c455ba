"""What the OpenAPI document says of every endpoint."""

import pytest
from litestar.handlers import HTTPRouteHandler

from exo.api.app import routes
from exo.api.bodies.openapi import JSON, MARK, Described

ANY_JSON = {"/state/{path:path}"}
"""Paths whose answers may be any JSON."""


def described(handler: HTTPRouteHandler) -> Described:
    return handler.operation_class().to_schema().get(MARK, Described())


@pytest.mark.parametrize(
    "handler", routes(), ids=lambda handler: " ".join([*sorted(handler.http_methods), *handler.paths])
)
def test_every_json_answer_has_a_shape(handler: HTTPRouteHandler) -> None:
    told = described(handler)
    assert (told.answer is None) == (JSON not in told.media_types or bool(ANY_JSON & handler.paths))


def test_the_exceptions_are_endpoints() -> None:
    assert {path for handler in routes() for path in handler.paths} >= ANY_JSON
