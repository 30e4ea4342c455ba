"""Request bodies in the OpenAPI document. The endpoints read them themselves, so that every error names its place."""

from collections.abc import Mapping
from dataclasses import dataclass

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema


def with_body(example: Mapping[str, object]) -> type[Operation]:
    """An operation with a JSON body such as `example`."""

    @dataclass
    class WithBody(Operation):
        def __post_init__(self) -> None:
            schema = Schema(type=OpenAPIType.OBJECT, examples=[example])
            self.request_body = RequestBody(content={"application/json": OpenAPIMediaType(schema)}, required=True)

    return WithBody
