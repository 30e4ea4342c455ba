"""A response as a stream of events, numbered from 0."""

from collections.abc import Sequence

from pydantic_core import to_json

from exo.api.generations import sse
from exo.api.generations.event_frames import Given
from exo.api.http.errors import GenerationFailed
from exo.api.openai.responses.bodies import response_of
from exo.api.openai.responses.output import Fields, Output
from exo.api.openai.responses.progress import Progress, ended, status_of_items, unanswered
from exo.api.openai.responses.records import ResponseRecord
from exo.domain.messages.chunks import EndPiece


class ResponseWriter:
    """Turns the pieces of an answer into its events. `sequence_number` is the number that the event's id has."""

    def __init__(self, record: ResponseRecord) -> None:
        self._record = record
        self._output = Output(record.task_id)
        self._next = 0

    def opening(self) -> Sequence[bytes]:
        """It exists, and is being worked on."""
        return [self._told(f"response.{name}", Progress("in_progress")) for name in ("created", "in_progress")]

    def events(self, index: int, item: Given) -> Sequence[bytes]:
        """The events for one more piece."""
        if not isinstance(item, EndPiece):
            return [self._event(f"response.{name}", fields) for name, fields in self._output.add(item)]
        closing = self._output.close(status_of_items(item))
        last = [self._event(f"response.{name}", fields) for name, fields in closing]
        progress = ended(item, self._output)
        return [*last, self._told(f"response.{progress.status}", progress)]

    def closing(self) -> Sequence[bytes]:
        """Nothing: its last event says that it is over."""
        return ()

    def failed(self, failed: GenerationFailed) -> bytes:
        """The end of one that failed or was cancelled, with what there is of it."""
        return self._told("response.failed", unanswered(failed, self._output))

    def _told(self, kind: str, progress: Progress) -> bytes:
        return self._event(kind, {"response": response_of(self._record, progress)})

    def _event(self, kind: str, fields: Fields) -> bytes:
        number, self._next = self._next, self._next + 1
        data = to_json({"type": kind, "sequence_number": number, **fields})
        return sse.event(kind, data)
