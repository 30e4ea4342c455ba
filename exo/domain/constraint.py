"""What an answer's text must look like. The engine masks every token that would break it, while it decodes."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen


class _Asked(Frozen):
    param: str = "response_format"
    """The API's parameter that asked for it, which an error names."""


class JsonObject(_Asked):
    """Any JSON object."""

    type: Literal["json_object"] = "json_object"


class JsonSchema(_Asked):
    """JSON that is valid by a schema."""

    type: Literal["json_schema"] = "json_schema"
    text: str
    """The schema itself, as JSON."""
    strict: bool = True
    """Whether a schema is refused of which something cannot be enforced; else the rest of it is."""


class Regex(_Asked):
    """A text that a regular expression matches as a whole."""

    type: Literal["regex"] = "regex"
    pattern: str


class Choice(_Asked):
    """One of these texts."""

    type: Literal["choice"] = "choice"
    choices: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class Grammar(_Asked):
    """A text of the language of a context-free grammar, in Lark's syntax, whose first rule is `start`."""

    type: Literal["grammar"] = "grammar"
    text: str


Constraint = Annotated[JsonObject | JsonSchema | Regex | Choice | Grammar, Field(discriminator="type")]
