"""Request bodies in the OpenAPI document of endpoints whose answers it does not describe."""

from collections.abc import Mapping

from litestar.openapi.spec import Operation

from exo.api.openapi import operation


def with_body(example: Mapping[str, object]) -> type[Operation]:
    """An operation with a JSON body such as `example`."""
    return operation(example=example)
