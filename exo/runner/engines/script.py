"""What the scripted engine is told to do: the last user message, as JSON or as plain text."""

import json
import re
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from exo.domain.base import Frozen
from exo.errors import Rejected
from exo.models.output_format import OutputFormat, ThinkTags, ToolFormat

FaultKind = Literal["error", "crash", "out_of_memory", "hang"]
"""The request fails; the process exits; the engine as a whole raises MemoryError; `step` never returns."""

Byte = Annotated[int, Field(ge=0, le=255)]
WORD = re.compile(r"\s*\S+|\s+$")


class Fault(Frozen):
    """Goes wrong in place of the token after `after` ones, or of the layer, where a state is handed out."""

    kind: FaultKind
    after: NonNegativeInt = 0


class ScriptThink(ThinkTags):
    """Tags around the reasoning."""

    starts_inside: bool = False
    """Whether the prompt's end counts as having opened it."""


class Script(Frozen):
    """One generation, told in advance."""

    tokens: tuple[str | tuple[Byte, ...], ...]
    """Each is emitted as one token: a text, or raw bytes, so that a character can be cut over tokens."""
    pace: NonNegativeFloat = 0.0
    """Seconds before each token."""
    prefill: NonNegativeFloat = 0.0
    """Seconds before the first token's pace begins."""
    finish: Literal["stop", "length"] = "stop"
    """After the last token: an end token, or none and the last token finishes."""
    fault: Fault | None = None
    format: ToolFormat | Literal["gpt_oss_harmony", "think", "plain"] = "plain"
    """In which form there are calls in the text; "think" and "plain" have none."""
    think: ScriptThink | None = None

    def output_format(self) -> OutputFormat:
        """How the text is to be read."""
        if self.format == "gpt_oss_harmony":
            return OutputFormat(harmony=True)
        return OutputFormat(
            tools=None if self.format in ("think", "plain") else self.format,
            think=self.think and ThinkTags(open=self.think.open, close=self.think.close),
            starts_inside=self.think is not None and self.think.starts_inside,
        )

    @model_validator(mode="after")
    def _last_token_exists(self) -> Self:
        if self.finish == "length" and not self.tokens:
            raise ValueError("finish is 'length', but there is no token to finish with")
        return self


def parse_script(message: str) -> Script:
    """The script in `message`; text that is no JSON object is echoed, a word a token. Raises Rejected for a bad one."""
    if not message.lstrip().startswith("{"):
        return Script(tokens=tuple(WORD.findall(message)))
    try:
        return Script.model_validate(json.loads(message))
    except json.JSONDecodeError as error:
        raise Rejected(f"the script is not JSON: {error}", code="invalid_script", param="messages") from error
    except ValidationError as error:
        reasons = "; ".join(f"{_path(found['loc'])}: {found['msg']}" for found in error.errors(include_url=False))
        raise Rejected(f"the script is not valid: {reasons}", code="invalid_script", param="messages") from error


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
