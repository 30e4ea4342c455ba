"""Ollama's client against a node of its own: at the root, with models that come and go."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.integration.api_keys import bearer, create
from tests.stack import Stack, wait_until

MODEL = "exo/scripted"
HELLO: list[dict[str, str]] = [{"role": "user", "content": "hi"}]
YEARS = 20 * 365 * 86_400


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    node = Stack(tmp_path_factory.mktemp("node") / "home", ollama_at_root="1")
    try:
        yield node.start_ready()
    finally:
        node.stop()


@pytest.fixture(scope="module")
def sdk(node: Stack) -> Iterator[ollama.Client]:
    with ollama.Client(host=node.url) as one:
        yield one


@pytest.fixture
def client(node: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, timeout=30) as one:
        yield one


def loaded(sdk: ollama.Client) -> list[Any]:
    return list(sdk.ps().models)


def stays(sdk: ollama.Client) -> float:
    """Seconds until the loaded model goes."""
    (one,) = loaded(sdk)
    assert one.expires_at is not None
    return one.expires_at.timestamp() - time.time()


def test_the_root_answers_as_ollama_does(client: httpx.Client, sdk: ollama.Client) -> None:
    assert client.get("/").text == "Ollama is running"
    assert client.head("/").status_code == 200
    assert client.get("/api/version").json() == client.get("/ollama/api/version").json()
    assert sdk.chat(MODEL, HELLO).message.content == "hi"
    assert client.post("/api/nothing").status_code == 404
    assert list(client.post("/api/nothing").json()) == ["error"]
    assert "there is nothing at POST /api/nothing:" in client.post("/api/nothing").json()["error"]
    assert "there is nothing at GET /ollama/api/nö:" in client.get("/ollama/api/n%C3%B6").json()["error"]
    assert client.put("/api/chat").headers["allow"] == "OPTIONS, POST"


def test_a_model_stays_as_long_as_the_last_request_said(sdk: ollama.Client, client: httpx.Client) -> None:
    sdk.chat(MODEL, HELLO, keep_alive="10m")
    assert 500 < stays(sdk) <= 600
    sdk.generate(MODEL, "hi", keep_alive=60)
    assert 30 < stays(sdk) <= 60
    position = client.get("/state").json()["position"]
    sdk.chat(MODEL, HELLO, keep_alive=60)
    sdk.chat(MODEL, HELLO)
    events = client.get("/log/events", params={"after": position, "type": "IdleTimeLimited"}).json()["events"]
    assert events == []
    sdk.chat(MODEL, HELLO, keep_alive=-1)
    assert stays(sdk) > YEARS


def test_a_model_goes_when_nobody_asks_for_it_and_comes_when_somebody_does(sdk: ollama.Client) -> None:
    sdk.chat(MODEL, HELLO, keep_alive=0)
    wait_until(lambda: loaded(sdk) == [], "the model to go", 10)
    assert sdk.chat(MODEL, HELLO).message.content == "hi"
    assert stays(sdk) > YEARS


def test_a_model_is_loaded_and_unloaded_without_an_answer(sdk: ollama.Client) -> None:
    unloading = sdk.generate(MODEL, keep_alive=0)
    assert (unloading.done, unloading.done_reason, unloading.response) == (True, "unload", "")
    assert loaded(sdk) == []
    assert sdk.chat(MODEL, [], keep_alive=0).done_reason == "unload"
    loading = sdk.chat(MODEL, [], keep_alive=300)
    assert (loading.done, loading.done_reason, loading.message.content) == (True, "load", "")
    assert 200 < stays(sdk) <= 300
    (streamed,) = sdk.generate(MODEL, "", stream=True)
    assert streamed.done_reason == "load"


@pytest.mark.parametrize("ask", ["chat", "stream", "embed", "embed nothing"])
def test_the_time_that_loading_took_is_told_by_whoever_had_it_loaded(sdk: ollama.Client, ask: str) -> None:
    def figures() -> Any:
        if ask.startswith("embed"):
            return sdk.embed(MODEL, "a" if ask == "embed" else [])
        if ask == "chat":
            return sdk.chat(MODEL, HELLO)
        return list(sdk.chat(MODEL, HELLO, stream=True))[-1]

    sdk.generate(MODEL, keep_alive=0)
    assert loaded(sdk) == []
    cold, warm = figures(), figures()
    assert 0 < cold.load_duration <= cold.total_duration
    assert warm.load_duration == 0


def test_a_digest_stays_when_its_model_is_loaded(sdk: ollama.Client) -> None:
    sdk.generate(MODEL)
    (there,), (in_memory,) = sdk.list().models, loaded(sdk)
    (pulling,) = {part.digest for part in sdk.pull(MODEL, stream=True)} - {None}
    assert there.digest == in_memory.digest
    assert pulling == f"sha256:{there.digest}"


def test_keys_are_asked_for_as_elsewhere(node: Stack, sdk: ollama.Client) -> None:
    secret = create(node, "anna", "inference")
    try:
        with pytest.raises(ollama.ResponseError) as refused:
            sdk.chat(MODEL, HELLO)
        assert (refused.value.status_code, "key" in refused.value.error) == (401, True)
        with ollama.Client(host=node.url, headers=bearer(secret)) as one:
            assert one.chat(MODEL, HELLO).message.content == "hi"
            assert one.list().models
            with pytest.raises(ollama.ResponseError) as needs_admin:
                one.pull("scripted")
        assert needs_admin.value.status_code == 403
    finally:
        node.cli("keys", "revoke", "anna")


def test_a_key_for_answers_alone_takes_no_model_away_from_others(node: Stack, sdk: ollama.Client) -> None:
    secrets = {scope: create(node, f"bob-{scope}", scope) for scope in ("inference", "admin")}
    try:
        with ollama.Client(host=node.url, headers=bearer(secrets["inference"])) as one:
            assert one.chat(MODEL, HELLO, keep_alive="5m").message.content == "hi"
            assert one.chat(MODEL, HELLO, keep_alive=-1).message.content == "hi"
            for ask in (
                lambda: one.chat(MODEL, HELLO, keep_alive=0),
                lambda: one.chat(MODEL, HELLO, keep_alive="299s"),
                lambda: one.generate(MODEL, keep_alive=0),
                lambda: one.embed(MODEL, "hi", keep_alive=0),
            ):
                with pytest.raises(ollama.ResponseError, match="needs a key for admin") as refused:
                    ask()
                assert refused.value.status_code == 403
            assert stays(one) > YEARS
        with ollama.Client(host=node.url, headers=bearer(secrets["admin"])) as one:
            assert one.generate(MODEL, keep_alive=0).done_reason == "unload"
            assert loaded(one) == []
    finally:
        for scope in secrets:
            node.cli("keys", "revoke", f"bob-{scope}")
