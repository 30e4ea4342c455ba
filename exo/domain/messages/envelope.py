"""What the master's inbox carries: a command or a report, and who sent it."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat

from exo.domain.base import Frozen
from exo.domain.ids import MessageId
from exo.domain.messages.commands import Command
from exo.domain.messages.reports import Report


class Envelope(Frozen):
    """One message for the master. Sent again with the same id, it has no second effect."""

    message_id: MessageId
    source: str
    """The sender: an API process, a node or a runner."""
    sent_at: NonNegativeFloat
    """Seconds since the epoch, by the sender's clock."""
    body: Annotated[Command | Report, Field(discriminator="type")]
