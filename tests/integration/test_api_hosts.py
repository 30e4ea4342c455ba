"""A page that has its own name stand for this machine's address gets nothing, and says so in the API's own envelope."""

from collections.abc import Iterator

import httpx
import pytest
from api_keys import Secured

from tests.stack import Stack

EVIL = {"host": "evil.example:52415"}


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    node = Stack(tmp_path_factory.mktemp("node") / "home", allowed_hosts="exo.example.com")
    try:
        yield node.start_ready()
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/state"),
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/schema"),
        ("GET", "/nowhere"),
    ],
)
def test_another_name_is_refused_by_the_setting_that_allows_it(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path, headers=EVIL)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, "foreign_host")
    assert "EXO_ALLOWED_HOSTS" in error["message"]


def test_a_page_of_that_name_is_refused_though_it_is_of_the_same_origin(client: httpx.Client) -> None:
    answer = client.post("/place_instance", json={}, headers={**EVIL, "origin": "http://evil.example:52415"})
    assert answer.json()["error"]["code"] == "foreign_host"


def test_anthropics_clients_read_it_in_their_envelope(client: httpx.Client) -> None:
    error = client.post("/v1/messages", json={}, headers=EVIL).json()["error"]
    assert (error["type"], error["details"]["error_code"]) == ("permission_error", "foreign_host")


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "[::1]:52415", "exo.example.com", "EXO.example.com:443"])
def test_this_machines_names_and_those_that_are_set_are_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_health_is_told_to_everybody(client: httpx.Client) -> None:
    assert client.get("/health", headers=EVIL).status_code == 200


def test_where_a_key_is_needed_the_key_decides(secured: Secured) -> None:
    assert secured.client("read").get("/state", headers=EVIL).status_code == 200
    assert secured.client().get("/state", headers=EVIL).status_code == 401
