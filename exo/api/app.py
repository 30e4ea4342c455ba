"""The Litestar application: every endpoint, and one handler for whatever goes wrong."""

from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig

from exo import __version__
from exo.api.cluster import commands, events, health, instances, log, log_check, metrics, previews, state, usage
from exo.api.context import Api
from exo.api.error_responses import respond
from exo.api.openai import chat, completions, models
from exo.api.openai.responses import creating, stored
from exo.api.query_names import refuse_unknown

BODY_MOST = 32 * 2**20
"""Bytes of a request's body."""


def create_app(api: Api) -> Litestar:
    """The application over what one process has connected to."""
    return Litestar(
        route_handlers=[
            chat.chat_completions,
            completions.completions,
            creating.create_response,
            stored.show_response,
            stored.cancel_response,
            stored.delete_response,
            stored.list_input_items,
            models.list_models,
            models.show_model,
            health.health,
            health.ready,
            metrics.show_metrics,
            state.show_state,
            state.show_part,
            events.follow_events,
            log.list_events,
            log.show_event,
            log.show_state,
            log.show_diff,
            log.show_why,
            log.show_stats,
            log_check.verify_log,
            instances.place_instance,
            instances.delete_instance,
            instances.show_instance,
            previews.show_previews,
            commands.show_command,
            commands.cancel_generation,
            usage.show_usage,
        ],
        dependencies={"api": Provide(lambda: api, sync_to_thread=False)},
        before_request=refuse_unknown,
        exception_handlers={Exception: respond},
        openapi_config=OpenAPIConfig(title="exo", version=__version__, path="/schema"),
        request_max_body_size=BODY_MOST,
        logging_config=None,
        debug=False,
    )
