"""Prefill on one instance, decode on another: which two belong together, and what became of it for one generation."""

from pydantic import NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.ids import InstanceId


class PrefillLink(Frozen):
    """Who computes the prompts of an instance."""

    prefill_id: InstanceId
    since: NonNegativeFloat
    """When the two were linked, seconds since the epoch."""


class PrefillSource(Frozen):
    """Who may be asked for the KV state of a prompt, and where."""

    instance: InstanceId
    host: str
    """The address at which the node that decodes reaches the one that prefills."""


class PrefillAttempt(Frozen):
    """What came of asking another instance for the KV state of a prompt."""

    instance_id: InstanceId
    """Who was asked."""
    tokens: NonNegativeInt = 0
    """Of the prompt, those whose state came; 0: it computed none, and the instance that decodes computed all."""
    asked_after: NonNegativeFloat = 0.0
    """Seconds from taking the task to asking."""
    seconds: NonNegativeFloat = 0.0
    """From asking until the state was there, or it was clear that it would not come."""
    error: str = ""
    """Why none came."""
