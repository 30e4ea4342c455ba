"""What a model's text is made of, once it has been read: answer, reasoning, and calls of tools."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Some more of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Some more of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call of a tool. `arguments` is a JSON object."""

    name: str
    arguments: str


Segment = Text | Reasoning | Call
