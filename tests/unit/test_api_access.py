"""Who gets in: by which header, with which key, to which route."""

import pytest
from litestar.handlers import HTTPRouteHandler

from exo.api.app import routes
from exo.api.http.access import ADMIN, EVERYBODY, INFERENCE, READ, Access, Keys, access_of, secrets_in
from exo.domain.advance import after
from exo.domain.ids import KeyName
from exo.domain.keys import Scope, digest_of
from exo.domain.messages.events import KeyCreated, KeyRevoked
from exo.domain.state import State
from exo.errors import Rejected


def having(*scopes: Scope) -> State:
    """State with one key, whose secret is `secret`."""
    created = KeyCreated(key=KeyName("anna"), digest=digest_of(b"secret"), scopes=scopes)
    return after(State(), [created], 1.0)


BEARER = [(b"authorization", b"Bearer secret")]


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], []),
        ([(b"authorization", b"Bearer one")], [b"one"]),
        ([(b"authorization", b"bearer  one ")], [b"one"]),
        ([(b"x-api-key", b"two")], [b"two"]),
        ([(b"x-api-key", b"two"), (b"authorization", b"Bearer one")], [b"two", b"one"]),
        ([(b"authorization", b"Basic b25l")], []),
        ([(b"authorization", b"\xff\xfe")], []),
    ],
)
def test_a_key_comes_as_each_kind_of_client_sends_it(headers: list[tuple[bytes, bytes]], found: list[bytes]) -> None:
    assert secrets_in(headers) == found


def test_without_any_key_everybody_is_let_in_and_pays_as_nobody() -> None:
    assert Keys(is_locked=False).admit(State(), BEARER, ADMIN) is None


def test_an_api_that_others_reach_lets_nobody_in_without_a_key() -> None:
    with pytest.raises(Rejected, match="exo keys create"):
        Keys(is_locked=True).admit(State(), BEARER, READ)


def test_one_good_key_among_those_sent_is_enough() -> None:
    headers = [(b"authorization", b"Bearer unused"), (b"x-api-key", b"secret")]
    key = Keys(is_locked=False).admit(having("read"), headers, READ)
    assert key is not None
    assert key.name == "anna"


@pytest.mark.parametrize("headers", [[], [(b"x-api-key", b"Secret")], [(b"authorization", b"secret")]])
def test_who_brings_no_key_or_a_wrong_one_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Rejected) as refused:
        Keys(is_locked=False).admit(having("admin"), headers, READ)
    assert refused.value.code == "invalid_api_key"


def test_a_key_is_refused_what_it_is_not_for_by_the_name_of_what_is_needed() -> None:
    with pytest.raises(Rejected, match=r"'anna' is for read; this needs one for inference") as refused:
        Keys(is_locked=False).admit(having("read"), BEARER, INFERENCE)
    assert refused.value.code == "insufficient_scope"


def test_the_last_key_revoked_opens_what_was_open_and_nothing_that_others_reach() -> None:
    state = having("admin")
    local, exposed = Keys(is_locked=False), Keys(is_locked=True)
    assert local.admit(state, BEARER, ADMIN) is not None
    assert exposed.admit(state, BEARER, ADMIN) is not None
    state = after(state, [KeyRevoked(key=KeyName("anna"))], 2.0)
    assert local.admit(state, BEARER, ADMIN) is None
    with pytest.raises(Rejected):
        exposed.admit(state, BEARER, ADMIN)


READING = {"/ollama/api/show"}
"""What changes nothing, whatever its method."""
ROUTES = [
    pytest.param(method, path, access_of(one), id=f"{method} {path}")
    for one in routes()
    for path in one.paths
    for method in sorted(one.http_methods)
]


@pytest.mark.parametrize(("method", "path", "access"), ROUTES)
def test_only_health_is_open_and_what_changes_something_is_for_few(method: str, path: str, access: Access) -> None:
    assert (access is EVERYBODY) == (path == "/health")
    assert access.before_state == (path == "/ready")
    if method not in {"GET", "HEAD"} and path not in READING:
        assert access in {INFERENCE, ADMIN}
    if path.startswith(("/state", "/log", "/events", "/metrics")) or path == "/v1/usage":
        assert access is READ


def test_a_route_that_says_nothing_needs_everything() -> None:
    handler = HTTPRouteHandler("/new", http_method="GET")
    assert access_of(handler) == ADMIN
