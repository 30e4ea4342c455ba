"""Keys on a real node: made, used, limited, revoked, and told nobody."""

import json
import re
from typing import cast

import pytest
from api_keys import PAGE, SCOPES, Secured, bearer, create

from exo.api.app import routes
from exo.api.http.access import Access, access_of
from exo.domain.keys import Scope
from tests.stack import PROCESSES, wait_until


def chat(script: object, **fields: object) -> dict[str, object]:
    return {"model": "scripted", "messages": [{"role": "user", "content": json.dumps(script)}], **fields}


HELLO = chat({"tokens": ["hello"]})
ROUTES = [
    pytest.param(method, re.sub(r"\{[^}]*\}", "none", path), access_of(one), id=f"{method} {path}")
    for one in routes()
    for path in one.paths
    for method in sorted(one.http_methods)
]


@pytest.mark.parametrize(("method", "path", "access"), ROUTES)
def test_each_route_lets_in_each_scope_that_reaches_it(
    secured: Secured, method: str, path: str, access: Access
) -> None:
    def status(scope: Scope | None) -> int:
        with secured.client(scope).stream(method, path, json={}) as response:
            assert ("www-authenticate" in response.headers) == (response.status_code in {401, 403})
            return response.status_code

    if not access.scopes:
        assert status(None) not in {401, 403}
        return
    assert status(None) == 401
    for scope in SCOPES:
        allowed = scope == "admin" or scope in access.scopes
        assert (status(scope) not in {401, 403}) == allowed, scope


@pytest.mark.parametrize("path", ["/schema", "/schema/openapi.json"])
def test_the_description_of_the_endpoints_needs_any_key(secured: Secured, path: str) -> None:
    assert secured.client().get(path).status_code == 401
    assert secured.client("read").get(path).status_code == 200


@pytest.mark.parametrize("headers", [{"authorization": "Bearer SECRET"}, {"x-api-key": "SECRET"}])
def test_a_key_is_taken_under_either_name(secured: Secured, headers: dict[str, str]) -> None:
    sent = {name: value.replace("SECRET", secured.secrets["inference"]) for name, value in headers.items()}
    answer = secured.client().post("/v1/chat/completions", json=HELLO, headers=sent)
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


def test_the_command_line_shows_its_key(secured: Secured) -> None:
    stack = secured.stack
    refused = stack.cli("status")
    assert (refused.returncode, "EXO_API_KEY" in refused.stderr) == (1, True)
    stack.environment["EXO_API_KEY"] = secured.secrets["admin"]
    try:
        assert stack.cli("status").returncode == 0
    finally:
        del stack.environment["EXO_API_KEY"]


def test_usage_is_told_by_the_names_of_keys(secured: Secured) -> None:
    secret = create(secured.stack, "anna@work")
    answer = secured.client().post("/v1/chat/completions", json=HELLO, headers=bearer(secret)).json()
    read = secured.client("read")

    def of_anna() -> list[dict[str, object]]:
        data = cast("list[dict[str, object]]", read.get("/v1/usage", params={"by": "key"}).json()["data"])
        return [one for one in data if one["key"] == "anna@work"]

    wait_until(lambda: of_anna() != [], "the generation in the log")
    (found,) = of_anna()
    assert (found["requests"], found["completion_tokens"]) == (1, answer["usage"]["completion_tokens"])
    assert "anna@work" in secured.stack.cli("usage", "--by", "key").stdout


def test_a_key_stops_its_own_generations_and_an_admin_all(secured: Secured) -> None:
    other = create(secured.stack, "other")
    slow = chat({"tokens": ["x"] * 1000, "pace": 0.05}, stream=True)
    for stopper in (secured.secrets["inference"], secured.secrets["admin"]):
        with secured.client("inference").stream("POST", "/v1/chat/completions", json=slow) as response:
            lines = response.iter_lines()
            first = next(line for line in lines if line.startswith("data: "))
            path = f"/v1/cancel/{json.loads(first.removeprefix('data: '))['id']}"
            wait_until(lambda: len(secured.client("read").get("/state/generations").json()) == 1, "it in State")
            refused = secured.client().post(path, headers=bearer(other))
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
            assert secured.client().post(f"{path}?wait=10", headers=bearer(stopper)).status_code == 200
            assert "cancelled" in "".join(lines)


def test_a_response_is_shown_to_the_key_that_asked_for_it_and_to_admins(secured: Secured) -> None:
    other = bearer(create(secured.stack, "curious", "inference"))
    made = secured.client("inference").post("/v1/responses", json={"model": "exo/scripted", "input": "hi"})
    path, again = f"/v1/responses/{made.json()['id']}", {"model": "exo/scripted", "input": "x"}
    wait_until(lambda: secured.client().get("/v1/models", headers=other).status_code == 200, "the key to be known", 5)
    assert secured.client("inference").get(path).status_code == 200
    assert secured.client("admin").get(path).status_code == 200
    assert secured.client().get(path, headers=other).json()["error"]["code"] == "response_not_found"
    assert secured.client().delete(path, headers=other).status_code == 404
    more = {**again, "previous_response_id": made.json()["id"]}
    assert secured.client().post("/v1/responses", json=more, headers=other).status_code == 400


def test_a_revoked_key_lets_nobody_in_any_more_and_its_open_stream_ends_well(secured: Secured) -> None:
    secret = create(secured.stack, "short-lived")
    paced, client = chat({"tokens": ["x"] * 60, "pace": 0.05}, stream=True), secured.client()
    with client.stream("POST", "/v1/chat/completions", json=paced, headers=bearer(secret)) as response:
        lines = response.iter_lines()
        next(line for line in lines if line.startswith("data: "))
        assert secured.stack.cli("keys", "revoke", "short-lived").returncode == 0
        wait_until(lambda: client.get("/v1/models", headers=bearer(secret)).status_code == 401, "the refusal", 5)
        assert "data: [DONE]" in list(lines)
    refused = client.post("/v1/chat/completions", json=HELLO, headers=bearer(secret))
    assert "revoked" in refused.json()["error"]["message"]


def test_keys_are_listed_without_what_they_are_known_by(secured: Secured) -> None:
    create(secured.stack, "gone", "read", "inference")
    secured.stack.cli("keys", "revoke", "gone")
    shown = secured.stack.cli("keys", "list", "--json")
    keys = {key["name"]: key for key in json.loads(shown.stdout)}
    assert keys["gone"]["scopes"] == ["inference", "read"]
    assert keys["gone"]["revoked_at"] > keys["gone"]["created_at"]
    assert keys["for-admin"]["revoked_at"] is None
    assert "digest" not in keys["gone"]
    assert "for-admin" in secured.stack.cli("keys", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--name", "for-read"], "a name is given once"),
        (["create", "--name", "anonymous"], "choose another"),
        (["create", "--name", "a b"], "letters, digits"),
        (["create", "--scope", "everything"], "inference"),
        (["revoke", "nobodys"], "no key 'nobodys'"),
    ],
)
def test_what_cannot_be_done_is_said(secured: Secured, arguments: list[str], words: str) -> None:
    refused = secured.stack.cli("keys", *arguments)
    assert refused.returncode != 0
    assert words in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_the_log_tells_who_made_a_key_and_who_revoked_it(secured: Secured) -> None:
    create(secured.stack, "told", "read")
    secured.stack.cli("keys", "revoke", "told")
    read = secured.client("read")
    node = next(iter(read.get("/state/nodes").json().values()))["facts"]["hostname"]
    wait_until(lambda: read.get("/log/why/told").json().get("summary") == "the key told was revoked, for ever", "it")
    made, revoked = read.get("/log/why/told").json()["steps"]
    assert made["text"] == "the key told was made, for read"
    assert (made["cause"]["name"], revoked["cause"]["name"]) == ("CreateKey", "RevokeKey")
    assert made["cause"]["text"].endswith(f"`exo keys` on {node}")
    assert revoked["because"] == [made["position"]]


def test_no_secret_is_in_any_file_state_event_or_word_of_a_process(secured: Secured) -> None:
    stack, read = secured.stack, secured.client("read")
    for secret in secured.secrets.values():
        secured.client().get("/state", headers=bearer(secret))
        secured.client().get("/state", headers={"x-api-key": secret})
        files = [file for file in stack.home.rglob("*") if file.is_file() and not file.is_socket()]
        assert not [file.name for file in files if secret.encode() in file.read_bytes()]
        assert not [name for name in PROCESSES if secret in stack.output(name)]
        assert secret not in read.get("/state").text
        assert secret not in read.get("/log/events?limit=1000").text
        assert secret not in stack.cli("log", "tail").stdout


def test_a_page_that_is_let_in_may_ask_without_a_key_whether_it_may(secured: Secured) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    client = secured.client()
    answer = client.options("/v1/chat/completions", headers={"origin": PAGE, **asks})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, PAGE)
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    refused = client.options("/v1/chat/completions", headers={"origin": "https://elsewhere.example", **asks})
    assert "access-control-allow-origin" not in refused.headers
    answer = secured.client("read").get("/v1/models", headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    unknown = client.get("/v1/models", headers={"origin": PAGE})
    assert (unknown.status_code, unknown.headers["access-control-allow-origin"]) == (401, PAGE)


def test_a_page_that_is_not_let_in_cannot_even_send_what_changes_something(secured: Secured) -> None:
    def stop(origin: str) -> int:
        return secured.client("admin").post("/v1/cancel/none", headers={"origin": origin}).status_code

    refused = secured.client("admin").post("/v1/cancel/none", headers={"origin": "null"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_page")
    assert [stop("https://elsewhere.example"), stop(PAGE), stop(secured.stack.url)] == [403, 202, 202]
    assert secured.client("read").get("/state", headers={"origin": "https://elsewhere.example"}).status_code == 200
