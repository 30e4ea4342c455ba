"""Identifiers. Each is safe as one token of a NATS subject."""

import re
from typing import NewType

NodeId = NewType("NodeId", str)
"""One machine's home folder; kept there, so that it survives restarts."""

InstanceId = NewType("InstanceId", str)
"""One placement of a model over one or more nodes."""

RunnerId = NewType("RunnerId", str)
"""One shard of an instance: the place that a runner process fills, again and again if it has to be restarted."""

TaskId = NewType("TaskId", str)
"""One generation."""

MessageId = NewType("MessageId", str)
"""One command or report; the master acts on it once, however often it is delivered."""

ApiId = NewType("ApiId", str)
"""One API process; chunks are addressed to it."""

ModelId = NewType("ModelId", str)
"""A model's full name, as in `HuggingFaceTB/SmolLM2-135M-Instruct`. Never part of a subject."""

KeyName = NewType("KeyName", str)
"""An API key's name: given once, for ever, also after the key is revoked. Never part of a subject."""

TOKEN = re.compile(r"^[A-Za-z0-9_-]+$")


def is_token(text: str) -> bool:
    """Whether `text` can stand in a subject without being a separator or a wildcard."""
    return TOKEN.fullmatch(text) is not None
