"""The placements of a log, decided anew by today's placement."""

from collections.abc import AsyncIterator

from exo.domain.fold import fold
from exo.domain.what_if import Reconsidered, reconsider
from exo.log.moving.archive import OnProgress
from exo.log.reading import PAGE, LogReader
from exo.log.replay import load_state


async def placements(
    store: LogReader,
    after: int = 0,
    upto: int | None = None,
    on_progress: OnProgress = lambda _position, _end: None,
) -> AsyncIterator[Reconsidered]:
    """Each placement with `after` < position <= `upto` (None: the end), as it was and as it would be; in one pass.

    Where one refusal ended several generations, it is there once.
    """
    end = store.position if upto is None else upto
    state = await load_state(store, after)
    refused: tuple[float, str] | None = None
    async for recorded in store.stream(after, end):
        found = reconsider(state, recorded)
        state = fold(state, recorded)
        if state.position % PAGE == 0:
            on_progress(state.position, end)
        if found is None:
            continue
        refusal = None if found.then.node_ids else (found.time, found.model_id)
        if refusal is None or refusal != refused:
            yield found
        refused = refusal
