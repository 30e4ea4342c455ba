"""Where others reach the API it starts with a key, and keys outlive every process."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api_keys import bearer, create

from tests.stack import Stack, wait_until


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Stack]:
    """A node whose API listens at all addresses. Nothing runs yet."""
    node = Stack(tmp_path / "home", api_host="0.0.0.0", default_model="none")
    try:
        yield node
    finally:
        node.stop()


def status(node: Stack, path: str, secret: str | None = None) -> int:
    """0 where nobody answers."""
    try:
        return httpx.get(f"{node.url}{path}", headers=bearer(secret) if secret else {}, timeout=10).status_code
    except httpx.TransportError:
        return 0


def test_where_others_reach_it_the_api_starts_with_a_key_only(open_node: Stack) -> None:
    node = open_node
    node.start(["nats", "master"])
    refused = node.cli("api", timeout=30)
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    assert "exo keys create" in last
    assert "--insecure" in last
    assert "listening" not in refused.stderr
    secret = create(node, "me", "admin")
    node.start(["api"])
    wait_until(lambda: status(node, "/state", secret) == 200, "the API")
    assert status(node, "/state") == 401
    assert node.cli("keys", "revoke", "me").returncode == 0
    wait_until(lambda: status(node, "/state", secret) == 401, "the revocation", 5)
    assert status(node, "/state") == 401


def test_insecure_lets_everybody_in_as_long_as_there_is_no_key(open_node: Stack) -> None:
    node = open_node
    node.environment["EXO_API_INSECURE"] = "1"
    node.start(["nats", "master", "api"])
    wait_until(lambda: status(node, "/state") == 200, "the API")
    create(node, "me", "admin")
    wait_until(lambda: status(node, "/state") == 401, "the refusal", 5)


def test_keys_outlive_master_and_api_and_without_a_master_nobody_is_let_in(open_node: Stack) -> None:
    node = open_node
    node.environment["EXO_API_HOST"] = "127.0.0.1"
    node.start(["nats", "master", "api"])
    wait_until(lambda: status(node, "/state") == 200, "the API")
    secret = create(node, "me", "admin")
    wait_until(lambda: status(node, "/state") == 401, "the refusal", 5)
    node.kill("master")
    node.kill("api")
    node.start(["api"])
    wait_until(lambda: status(node, "/health") == 200, "the API")
    wait_until(lambda: "master" in str(httpx.get(f"{node.url}/ready").json()["reasons"]), "what is missing")
    assert [status(node, "/state"), status(node, "/state", secret), status(node, "/v1/models")] == [503] * 3
    node.start(["master"])
    wait_until(lambda: status(node, "/state", secret) == 200, "the master")
    assert status(node, "/state") == 401
    assert status(node, "/ready") == 401
