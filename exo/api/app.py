"""The Litestar application: every endpoint, and one handler for whatever goes wrong."""

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler

from exo import __version__
from exo.api.anthropic import counting, messages
from exo.api.bodies.openapi_document import DocumentConfig
from exo.api.bodies.openapi_routes import RENDERED, document_router
from exo.api.bodies.query_names import check_query_names
from exo.api.cluster import (
    adding,
    commands,
    downloads,
    events,
    health,
    instances,
    linking,
    log,
    log_check,
    metrics,
    nodes,
    placements,
    previews,
    readiness,
    searching,
    state,
    traces,
    usage,
)
from exo.api.cluster import (
    models as cluster_models,
)
from exo.api.context import Api
from exo.api.http.access import ADMIN, ANY_KEY, EVERYBODY, INFERENCE, OPTION, PROBES, READ, with_access
from exo.api.http.content_encoding import refuse_encoded
from exo.api.http.error_responses import respond
from exo.api.http.no_endpoint import answers_without_endpoint
from exo.api.http.web_pages import cors_of, refuse_foreign_page
from exo.api.ollama import chat as ollama_chat
from exo.api.ollama import deleting, embed, generate, loaded, probes, pull
from exo.api.ollama import models as ollama_models
from exo.api.openai import bench, chat, completions, embeddings, models
from exo.api.openai.responses import creating, stored

BODY_MOST = 32 * 2**20
"""Bytes of a request's body."""


def ollama_routes() -> list[HTTPRouteHandler]:
    """Ollama's endpoints, by who may ask them."""
    return [
        *with_access(ANY_KEY, probes.show_alive, probes.show_version),
        *with_access(ANY_KEY, ollama_models.list_tags, ollama_models.show_model, loaded.list_loaded),
        *with_access(INFERENCE, ollama_chat.chat, generate.generate, embed.embed_texts, embed.embed_text),
        *with_access(ADMIN, pull.pull_model, deleting.delete_model),
    ]


def routes() -> list[HTTPRouteHandler]:
    """Every endpoint, by who may ask it."""
    return [*other_routes(), *ollama_routes()]


def other_routes() -> list[HTTPRouteHandler]:
    """Every endpoint that is none of Ollama's."""
    return [
        *with_access(EVERYBODY, health.health),
        *with_access(PROBES, health.ready),
        *with_access(ANY_KEY, models.list_models, models.show_model),
        *with_access(
            INFERENCE,
            chat.chat_completions,
            completions.completions,
            embeddings.create_embeddings,
            bench.bench_chat_completions,
            creating.create_response,
            stored.show_response,
            stored.cancel_response,
            stored.delete_response,
            stored.list_input_items,
            messages.create_message,
            counting.count_tokens,
            commands.cancel_generation,
        ),
        *with_access(
            READ,
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
            instances.show_instance,
            previews.show_previews,
            commands.show_command,
            usage.show_usage,
            traces.list_traces,
            traces.show_trace,
            nodes.show_node_id,
            nodes.show_capabilities,
            cluster_models.list_models,
            searching.search_models,
            downloads.list_downloads,
            placements.show_placement,
            readiness.await_instance,
            instances.list_instances,
        ),
        *changes(),
    ]


def changes() -> list[HTTPRouteHandler]:
    """The endpoints that change the cluster."""
    return with_access(
        ADMIN,
        instances.place_instance,
        instances.delete_instance,
        linking.link_instances,
        linking.unlink_instances,
        placements.create_instance,
        downloads.start_download,
        downloads.cancel_download,
        adding.add_model,
        adding.forget_model,
    )


def create_app(api: Api) -> Litestar:
    """The application over what one process has connected to."""
    return Litestar(
        route_handlers=routes(),
        dependencies={"api": Provide(lambda: api, sync_to_thread=False)},
        guards=[refuse_foreign_page, api.check_access, refuse_encoded],
        before_request=check_query_names,
        exception_handlers={
            Exception: respond,
            **dict.fromkeys((NotFoundException, MethodNotAllowedException), answers_without_endpoint(api.check_known)),
        },
        openapi_config=DocumentConfig(
            title="exo",
            version=__version__,
            render_plugins=RENDERED,
            openapi_router=document_router({OPTION: ANY_KEY}),
        ),
        cors_config=cors_of(api.settings.cors_origins),
        request_max_body_size=BODY_MOST,
        logging_config=None,
        debug=False,
    )
