"""Instances by what people call them."""

from exo.domain.ids import InstanceId
from exo.domain.instance import Instance
from exo.domain.state import State
from exo.errors import Rejected


def full_id(state: State, name: str) -> InstanceId:
    """The instance's id of which `name` is the beginning; `name` itself where none is, since State may be behind.

    Raises Rejected where it is the beginning of several.
    """
    found = [instance_id for instance_id in sorted(state.instances) if name and instance_id.startswith(name)]
    if len(found) > 1:
        reason = f"'{name}' is the beginning of more than one instance: {', '.join(found)}"
        raise Rejected(reason, code="ambiguous_instance")
    return found[0] if found else InstanceId(name)


def find_instance(state: State, name: str) -> Instance:
    """An instance by its id or the beginning of it. Raises Rejected unless it is exactly one."""
    instance = state.instances.get(full_id(state, name))
    if instance is None:
        raise Rejected(f"there is no instance '{name}'", code="instance_not_found")
    return instance
