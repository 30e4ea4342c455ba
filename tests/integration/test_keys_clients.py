"""Keys that are not good, or not for this, as client libraries tell of them: each by its own exceptions."""

from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from api_keys import Secured
from langchain_core.exceptions import ModelAuthenticationError, ModelPermissionDeniedError
from langchain_openai import ChatOpenAI
from litellm import exceptions
from litellm_calls import WITH_LITELLM, complete

pytestmark = WITH_LITELLM
MESSAGES: Any = [{"role": "user", "content": "hi"}]
Ask = Callable[[str, str], object]


def by_openai(url: str, secret: str) -> object:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0) as client:
        return client.chat.completions.create(model="scripted", messages=MESSAGES)


def by_anthropic(url: str, secret: str) -> object:
    with anthropic.Anthropic(base_url=url, api_key=secret, max_retries=0) as client:
        return client.messages.create(model="scripted", max_tokens=5, messages=MESSAGES)


def by_anthropic_with_a_token(url: str, secret: str) -> object:
    with anthropic.Anthropic(base_url=url, auth_token=secret, max_retries=0) as client:
        return client.messages.create(model="scripted", max_tokens=5, messages=MESSAGES)


def by_langchain(url: str, secret: str) -> object:
    fields: dict[str, Any] = {"model": "scripted", "api_key": secret, "max_retries": 0}
    return ChatOpenAI(base_url=f"{url}/v1", **fields).invoke("hi")


def by_litellm(url: str, secret: str) -> object:
    fields = {"api_base": f"{url}/v1", "api_key": secret, "max_retries": 0}
    return complete(model="openai/scripted", messages=MESSAGES, **fields)


def by_litellm_as_anthropic(url: str, secret: str) -> object:
    fields = {"api_base": url, "api_key": secret, "max_retries": 0}
    return complete(model="anthropic/scripted", max_tokens=5, messages=MESSAGES, **fields)


CLIENTS = [
    (by_openai, openai.AuthenticationError, openai.PermissionDeniedError),
    (by_anthropic, anthropic.AuthenticationError, anthropic.PermissionDeniedError),
    (by_anthropic_with_a_token, anthropic.AuthenticationError, anthropic.PermissionDeniedError),
    (by_langchain, ModelAuthenticationError, ModelPermissionDeniedError),
    (by_litellm, exceptions.AuthenticationError, exceptions.APIError),
    (by_litellm_as_anthropic, exceptions.AuthenticationError, exceptions.PermissionDeniedError),
]


@pytest.mark.parametrize(("ask", "unknown", "denied"), CLIENTS, ids=[ask.__name__ for ask, _, _ in CLIENTS])
def test_each_client_raises_its_own_exceptions(
    secured: Secured, ask: Ask, unknown: type[Exception], denied: type[Exception]
) -> None:
    with pytest.raises(unknown, match="this key is not known, or revoked"):
        ask(secured.stack.url, "exo-nobodys")
    with pytest.raises(denied, match="'for-read' is for read; this needs one for inference"):
        ask(secured.stack.url, secured.secrets["read"])
    assert ask(secured.stack.url, secured.secrets["inference"])


def test_the_anthropic_client_reads_the_code_and_the_id_of_a_refusal(secured: Secured) -> None:
    with pytest.raises(anthropic.AuthenticationError) as unknown:
        by_anthropic(secured.stack.url, "exo-nobodys")
    assert (unknown.value.type, unknown.value.error_code) == ("authentication_error", "invalid_api_key")
    assert unknown.value.request_id
    with pytest.raises(anthropic.PermissionDeniedError) as denied:
        by_anthropic(secured.stack.url, secured.secrets["read"])
    assert (denied.value.type, denied.value.error_code) == ("permission_error", "insufficient_scope")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.parametrize("path", ["/", "/nowhere", "/v1/nothing", "/v1/models", "/ready", "/v1/messages/nothing"])
def test_without_a_key_nobody_is_told_what_there_is(secured: Secured, method: str, path: str) -> None:
    answer = secured.client().request(method, path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="exo"')
    assert "invalid_api_key" in answer.text
    assert "allow" not in answer.headers


def test_with_any_key_a_path_without_an_endpoint_is_told_so(secured: Secured) -> None:
    def statuses(client: httpx.Client) -> list[int]:
        return [client.request(method, path).status_code for method, path in (("GET", "/v1/no"), ("PUT", "/v1/models"))]

    assert statuses(secured.client("inference")) == [404, 405]
    assert statuses(secured.client("read")) == [404, 405]
    assert secured.client().get("/health").status_code == 200
