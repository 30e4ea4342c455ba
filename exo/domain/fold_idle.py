"""How events about models that nobody asks for change State. Total, as all of the fold."""

from exo.domain.ids import ModelId
from exo.domain.messages.events import IdleTimeLimited
from exo.domain.state import IdleLimit, State, StateChanges, instances_of


def limited(state: State, event: IdleTimeLimited, time: float) -> StateChanges:
    """A model has a limit, or none any more."""
    if event.seconds is None:
        return _without_limit(state, event.model_id)
    limit = IdleLimit(seconds=event.seconds, since=time)
    return {"idle_limits": state.idle_limits.set(event.model_id, limit)}


def used(state: State, model_id: ModelId, time: float) -> StateChanges:
    """A model was of use until now."""
    limit = state.idle_limits.get(model_id)
    return {"idle_limits": state.idle_limits.set(model_id, limit.replaced({"since": time}))} if limit else {}


def unloaded(state: State, model_id: ModelId) -> StateChanges:
    """One instance of a model is about to go: with the last one goes the limit."""
    return _without_limit(state, model_id) if len(instances_of(state, model_id)) == 1 else {}


def _without_limit(state: State, model_id: ModelId) -> StateChanges:
    return {"idle_limits": state.idle_limits.delete(model_id)} if model_id in state.idle_limits else {}
