"""How events about models that were made known change State. Total, as all of the fold.

Each function gives the fields of State that are others afterwards.
"""

from exo.domain.messages.events import ModelAdded, ModelForgotten
from exo.domain.state import State, StateChanges


def added(state: State, event: ModelAdded) -> StateChanges:
    """One more model is known."""
    return {"added_models": state.added_models.set(event.card.model_id, event.card)}


def forgotten(state: State, event: ModelForgotten) -> StateChanges:
    """It is not known any more, but where a node has it."""
    if event.model_id not in state.added_models:
        return {}
    return {"added_models": state.added_models.delete(event.model_id)}
