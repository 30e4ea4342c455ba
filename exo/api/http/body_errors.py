"""What is wrong with a body, by what pydantic says of it."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from exo.api.http.problem import Problem
from exo.errors import without_prefix

ERRORS_MOST = 1000
"""Errors of one body that pydantic is asked to tell, which it does all at once, for three microseconds each."""


def body_problem(error: ValidationError) -> Problem:
    """The first of the errors; the number of them where they are too many to look at."""
    if error.error_count() > ERRORS_MOST:
        reason = f"the body has {error.error_count()} errors: docs/api.md has the parameters of each endpoint"
        return Problem("invalid_request", reason)
    return validation_problem(error.errors(include_url=False))


def validation_problem(errors: Sequence[ErrorDetails]) -> Problem:
    """The first of a body's errors, with the path of the parameter: `messages[0].content`."""
    first = errors[0]
    param = _path(first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return Problem("unsupported_parameter", f"'{param}' is not a parameter of this endpoint", param)
        case "not_supported":
            return Problem("unsupported_parameter", f"{param}: {first['msg']}", param)
        case "json_invalid" if not param:
            return Problem("invalid_json", f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
        case "missing":
            return Problem("invalid_request", f"'{param}' is missing", param)
        case "too_long" if param:
            return Problem("invalid_request", f"{param}: there may be {_count(first)} at most", param)
        case _:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            where = f"the key '{first['loc'][-2]}': " if first["loc"][-1:] == ("[key]",) else ""
            said = f"{param or 'the body'}: {where}{without_prefix(first['msg'])}{more}"
            return Problem("invalid_request", said, param or None)


def _count(error: ErrorDetails) -> int:
    return error.get("ctx", {})["max_length"]


def _path(location: tuple[int | str, ...]) -> str:
    """Of the parameter, without what pydantic adds: that it is about a mapping's key, or which type of several, which
    is a tag of a union, `<text>`, or a type, `list[…]`."""
    path = ""
    for part in location[:-2] if location[-1:] == ("[key]",) else location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "[" in part:
            break
        elif not part.startswith("<"):
            path += f".{part}"
    return path.removeprefix(".")
