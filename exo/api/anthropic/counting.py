"""`POST /v1/messages/count_tokens`."""

from contextlib import suppress
from typing import Any

from litestar import Request, Response, post
from typing_extensions import TypedDict

from exo.api.anthropic.messages import NAMES
from exo.api.anthropic.requests import PromptRequest
from exo.api.bodies.openapi import operation
from exo.api.bodies.param_names import named_refusal
from exo.api.context import Api
from exo.api.http.json_response import json_response
from exo.api.known.asked import body_and_card
from exo.api.known.ready_models import load
from exo.bus.client import new_id
from exo.bus.counts import ask_count
from exo.bus.requests import delete_request, put_request
from exo.domain.ids import TaskId
from exo.errors import Rejected, Retryable

LOADING = 300.0
"""Seconds that a model has to be ready."""
COUNTING = 60.0
"""Seconds for the tokens of the longest prompts."""
EXAMPLE = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}]}


class CountAnswer(TypedDict):
    """How long a prompt is."""

    input_tokens: int


@post(
    "/v1/messages/count_tokens",
    status_code=200,
    summary="Count the tokens of a conversation",
    tags=["Anthropic"],
    operation_class=operation(body=PromptRequest, example=EXAMPLE, answer=CountAnswer),
)
async def count_tokens(request: Request[Any, Any, Any], api: Api) -> Response[bytes]:
    """The tokens that `/v1/messages` would have a model read, by the model's own tokenizer and chat template."""
    body, card = await body_and_card(api, request, PromptRequest)
    api.check_room()
    instance_id, *_ = await load(api, card.model_id, LOADING)
    task_id = TaskId(new_id())
    try:
        await put_request(api.bus, task_id, body.to_domain())
        answer: CountAnswer = {"input_tokens": await ask_count(api.bus, instance_id, task_id, COUNTING)}
    except Rejected as refusal:
        raise named_refusal(refusal, NAMES) from refusal
    finally:
        # Nobody asks for it again. Where NATS is away it goes within the hour, as all do.
        with suppress(Retryable):
            await delete_request(api.bus, task_id)
    return json_response(answer)
