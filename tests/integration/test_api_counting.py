"""Anthropic's `count_tokens`, by its own client: what it says is what the message then costs."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import anthropic
import httpx
import pytest
from anthropic.types import Message, MessageTokensCount

from exo.bus.client import connect
from exo.bus.streams import BLOBS, REQUESTS
from tests import tiny_models
from tests.cluster.history import state
from tests.conftest import needs_mlx
from tests.stack import Stack, wait_until

SCRIPTED, TINY = "exo/scripted", "tiny/llama"
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function | tojson }}\n{% endfor %}"
    "{% for message in messages %}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}"
    "{% endfor %}" + tiny_models.CHAT_TEMPLATE
)
"""With a place for tools and calls."""
TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "Which ships passed in winter?"}]}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "And the weather?"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "snow"}]},
]
BODIES: dict[str, dict[str, Any]] = {
    "a question": QUESTION,
    "system": {**QUESTION, "system": "You keep a lighthouse."},
    "system as blocks": {
        **QUESTION,
        "system": [{"type": "text", "text": "You keep"}, {"type": "text", "text": "a book."}],
    },
    "tools": {**QUESTION, "tools": [TOOL]},
    "tools that must not be called": {**QUESTION, "tools": [TOOL], "tool_choice": {"type": "none"}},
    "a call and its result": {"messages": CALLED, "tools": [TOOL]},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node with a tiny model that knows of tools, which nothing has loaded yet."""
    root = tmp_path_factory.mktemp("node")
    folder = tiny_models.build("llama", root / "models" / "tiny--llama")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    places = str(root / "models")
    node = Stack(root / "home", engine="mlx", default_model="none", model_folders=places, offline="1")
    try:
        node.start()
        wait_until(lambda: node.is_up() and bool(state(node)["nodes"]), "the node to join")
        yield node
    finally:
        node.stop()


@pytest.fixture(scope="module")
def sdk(shared_stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=shared_stack.url, api_key="none", max_retries=0) as one:
        yield one


def count(sdk: anthropic.Anthropic, model: str, body: dict[str, Any]) -> int:
    counted = cast(Callable[..., MessageTokensCount], sdk.messages.count_tokens)
    return counted(model=model, **body).input_tokens


def cost(sdk: anthropic.Anthropic, model: str, body: dict[str, Any]) -> int:
    """The tokens of the prompt that a message then has, computed or found."""
    usage = cast(Callable[..., Message], sdk.messages.create)(model=model, max_tokens=1, **body).usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


@needs_mlx
def test_a25_the_count_is_what_the_message_costs(tiny: Stack) -> None:
    with anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0) as sdk:
        counts = {name: count(sdk, TINY, body) for name, body in BODIES.items()}
        assert counts == {name: cost(sdk, TINY, body) for name, body in BODIES.items()}
    assert counts["tools"] > counts["a question"] == counts["tools that must not be called"]
    assert counts["system"] > counts["a question"]
    assert len(state(tiny)["instances"]) == 1


def test_a25_a_count_of_a_script_is_what_the_message_costs(sdk: anthropic.Anthropic) -> None:
    assert count(sdk, SCRIPTED, QUESTION) == cost(sdk, SCRIPTED, QUESTION)


def test_a_count_is_no_generation(sdk: anthropic.Anthropic, client: httpx.Client) -> None:
    before = client.get("/state/position").json()
    assert count(sdk, SCRIPTED, QUESTION) > 0
    assert client.get("/state/position").json() == before


def test_a_prompt_over_the_context_is_counted_all_the_same(sdk: anthropic.Anthropic) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 4000}]}
    assert count(sdk, SCRIPTED, body) == 20_000


def test_a29_a_prompt_that_no_message_of_nats_holds_is_counted(sdk: anthropic.Anthropic) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "w" * 9_000_000}]}
    assert count(sdk, SCRIPTED, body) == 9_000_000


@pytest.mark.parametrize("size", [10, 9_000_000])
async def test_nothing_is_left_of_a_prompt_that_was_counted(stack: Stack, size: int) -> None:
    def counted(role: str) -> int:
        with anthropic.Anthropic(base_url=stack.url, api_key="none", max_retries=0) as sdk:
            return count(sdk, SCRIPTED, {"messages": [{"role": role, "content": "w" * size}]})

    assert await asyncio.to_thread(counted, "user") == size
    with pytest.raises(anthropic.BadRequestError):
        await asyncio.to_thread(counted, "system")
    bus = await connect(stack.nats_url, "home", "tester")
    try:
        assert (await bus.js.stream_info(REQUESTS)).state.messages == 0
        # The store remembers that there was something, and not what.
        assert (await bus.js.stream_info(f"OBJ_{BLOBS}")).state.bytes < 2000
    finally:
        await bus.close()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"messages": []}, "messages"),
        ({**QUESTION, "max_tokens": 5}, "max_tokens"),
        ({**QUESTION, "stream": True}, "stream"),
    ],
)
def test_a_bad_body_is_refused_by_the_parameters_name(client: httpx.Client, body: dict[str, Any], named: str) -> None:
    answer = client.post("/v1/messages/count_tokens", json={"model": "nowhere/nothing", **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert named in answer.json()["error"]["message"]


def test_an_unknown_model_is_not_found(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="there is no model"):
        count(sdk, "nowhere/nothing", QUESTION)


def test_what_the_model_refuses_is_told_as_for_a_message(sdk: anthropic.Anthropic) -> None:
    body: dict[str, Any] = {"messages": [{"role": "system", "content": "nobody asks"}]}
    with pytest.raises(anthropic.BadRequestError, match="no user message"):
        count(sdk, SCRIPTED, body)


def test_a_model_that_is_not_loaded_is_loaded_once_for_the_count(stack: Stack) -> None:
    with anthropic.Anthropic(base_url=stack.url, api_key="none", max_retries=0) as sdk:
        for instance_id in state(stack)["instances"]:
            httpx.delete(f"{stack.url}/instance/{instance_id}", params={"wait": 10}, timeout=20)
        assert count(sdk, SCRIPTED, QUESTION) > 0
    assert len(state(stack)["instances"]) == 1


@needs_mlx
def test_what_only_the_model_knows_is_refused_by_the_parameters_own_name(tiny: Stack) -> None:
    sdk = anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0)
    with sdk, pytest.raises(anthropic.BadRequestError) as refused:
        count(sdk, TINY, {**QUESTION, "thinking": {"type": "adaptive"}})
    assert "thinking" in refused.value.message
    assert "enable_thinking" not in refused.value.message
