"""A hash array mapped trie as a Pydantic field: setting one key of many costs the same, and the past is free."""

from collections.abc import Mapping
from typing import Annotated, TypeVar, get_args

from immutables import Map
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

K = TypeVar("K")
V = TypeVar("V")


class _AsSortedObject:
    """Validates from a mapping, serializes to one sorted by key: equal maps give equal bytes."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        key_type, value_type = get_args(source)
        mapping = handler.generate_schema(dict[key_type, value_type])
        return core_schema.no_info_after_validator_function(
            _to_map,
            core_schema.no_info_before_validator_function(_to_dict, mapping),
            serialization=core_schema.plain_serializer_function_ser_schema(_sorted, return_schema=mapping),
        )


def _to_dict(value: Mapping[object, object]) -> dict[object, object]:
    return dict(value) if isinstance(value, Map) else value  # pyright: ignore[reportReturnType]  validated next


def _to_map(value: dict[object, object]) -> Map[object, object]:
    return Map(value)


def _sorted(value: Map[str, object]) -> dict[str, object]:
    return {key: value[key] for key in sorted(value)}


PersistentMap = Annotated[Map[K, V], _AsSortedObject()]
