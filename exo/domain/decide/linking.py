"""Decisions on which instance computes the prompts of which other."""

from exo.domain.decide.instances import instance_of
from exo.domain.instance import Instance
from exo.domain.messages.commands import LinkInstances, UnlinkInstances
from exo.domain.messages.events import Event, InstancesLinked, InstancesUnlinked
from exo.domain.prefill_sources import host_for, prefill_ids
from exo.domain.state import State, host_of
from exo.errors import Rejected


def link(state: State, command: LinkInstances) -> list[Event]:
    """The two instances linked. Raises Rejected where they cannot be, and says what would make it possible."""
    prefill = instance_of(state, command.prefill_id, "prefill_id")
    decode = instance_of(state, command.decode_id, "decode_id")
    if prefill == decode:
        raise _refused("an instance needs no link to compute its own prompts: name two instances of one model")
    if prefill.model_id != decode.model_id:
        reason = f"{_named(prefill)} holds '{prefill.model_id}' and {_named(decode)} '{decode.model_id}'"
        raise _refused(f"{reason}: place the same model twice")
    for one in (prefill, decode):
        _refuse_if_spread(one)
    _refuse_if_taken(state, prefill, decode)
    if host_for(state, decode, prefill) is None:
        here, there = host_of(state, decode.node_ids[0]), host_of(state, prefill.node_ids[0])
        raise _refused(f"{here} has no measured link to {there}: see that its network reaches the other's workers")
    return [InstancesLinked(prefill_id=prefill.instance_id, decode_id=decode.instance_id)]


def unlink(state: State, command: UnlinkInstances) -> list[Event]:
    """The link ended. Raises Rejected where nobody prefills for the instance."""
    decode = instance_of(state, command.decode_id, "decode_id")
    known = state.prefill_links.get(decode.instance_id)
    if known is None:
        raise Rejected(f"no other instance prefills for {_named(decode)}", code="link_not_found", param="decode_id")
    unlinked = InstancesUnlinked(
        prefill_id=known.prefill_id, decode_id=decode.instance_id, reason="unlinked by a command"
    )
    return [unlinked]


def _refuse_if_spread(one: Instance) -> None:
    if len(one.shards) > 1:
        reason = f"{_named(one)} is spread over {len(one.shards)} ranks, and only one of a single rank"
        raise _refused(f"{reason} gives or takes KV state: place it on one node")


def _refuse_if_taken(state: State, prefill: Instance, decode: Instance) -> None:
    """An instance is at one end of a link only: whoever prefills for others has its own prompts to itself."""
    known = state.prefill_links.get(decode.instance_id)
    if known is not None:
        raise _refused(f"{_named(decode)} has instance {known.prefill_id} to prefill for it already: unlink it first")
    if decode.instance_id in prefill_ids(state):
        raise _refused(f"{_named(decode)} prefills for another instance: it cannot have one that prefills for it")
    if prefill.instance_id in state.prefill_links:
        raise _refused(f"{_named(prefill)} has another instance to prefill for it: unlink it first")


def _named(one: Instance) -> str:
    return f"instance {one.instance_id}"


def _refused(reason: str) -> Rejected:
    return Rejected(reason, code="cannot_link")
