"""Decisions on bringing models onto nodes because somebody asked for it."""

from exo.domain.messages.commands import CancelDownload, StartDownload
from exo.domain.messages.events import DownloadCancelled, DownloadRequested, Event
from exo.domain.state import State, download_key, host_of, requested_on
from exo.errors import Rejected


def start(state: State, command: StartDownload) -> list[Event]:
    """The download requested. Raises Rejected where the node is not there, cannot get the model, or has it."""
    node = state.nodes.get(command.node_id)
    if node is None:
        raise Rejected(f"there is no node '{command.node_id}'", code="node_not_found", param="node_id")
    holding, host = node.holdings.get(command.model_id), host_of(state, command.node_id)
    if holding is None:
        raise Rejected(f"{host} cannot get '{command.model_id}'", code="model_not_found", param="model_id")
    if holding.status == "ready":
        raise Rejected(f"{host} has '{command.model_id}' already", code="already_on_disk", param="model_id")
    if command.model_id in requested_on(state, command.node_id):
        raise Rejected(f"'{command.model_id}' is on its way to {host} already", code="already_requested")
    return [DownloadRequested(node_id=command.node_id, model_id=command.model_id)]


def cancel(state: State, command: CancelDownload) -> list[Event]:
    """The download taken back. Raises Rejected where nobody asked for it, or it is over."""
    known = state.downloads.get(download_key(command.node_id, command.model_id))
    if known is None or not known.requested:
        reason = f"no download of '{command.model_id}' to '{command.node_id}' was asked for and goes on"
        raise Rejected(reason, code="download_not_found")
    return [DownloadCancelled(node_id=command.node_id, model_id=command.model_id)]
