"""How events about linked instances change State. Total, as all of the fold."""

from exo.domain.messages.events import InstancesLinked, InstancesUnlinked
from exo.domain.prefill import PrefillLink
from exo.domain.state import State, StateChanges


def changed(state: State, event: InstancesLinked | InstancesUnlinked, time: float) -> StateChanges:
    """One instance prefills for another, where both are there, or does not any more."""
    if isinstance(event, InstancesLinked):
        return _linked(state, event, time)
    if event.decode_id not in state.prefill_links:
        return {}
    return {"prefill_links": state.prefill_links.delete(event.decode_id)}


def _linked(state: State, event: InstancesLinked, time: float) -> StateChanges:
    if event.prefill_id not in state.instances or event.decode_id not in state.instances:
        return {}
    link = PrefillLink(prefill_id=event.prefill_id, since=time)
    return {"prefill_links": state.prefill_links.set(event.decode_id, link)}
