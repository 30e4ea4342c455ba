"""Keys: made once, revoked for ever, and what each reaches."""

import pytest
from pydantic import ValidationError

from exo.domain.advance import after
from exo.domain.decide import decide
from exo.domain.ids import KeyName
from exo.domain.keys import ANONYMOUS, Key, Scope, digest_of
from exo.domain.messages.commands import CreateKey, RevokeKey
from exo.domain.messages.events import CommandRejected, Event, KeyCreated, KeyRevoked
from exo.domain.state import State

ANNA = KeyName("anna")
DIGEST = digest_of(b"a secret")
MADE, REVOKED = 1000.0, 2000.0


def decided(state: State, command: CreateKey | RevokeKey) -> Event:
    (event,) = decide(state, command, MADE, lambda: "id")
    return event


def created(name: str = ANNA, secret: bytes = b"a secret", scopes: tuple[Scope, ...] = ("read",)) -> CreateKey:
    return CreateKey(key=KeyName(name), digest=digest_of(secret), scopes=scopes)


def state_with_anna() -> State:
    return after(State(), [decided(State(), created())], MADE)


def test_a_key_is_in_state_by_its_name_and_without_its_secret() -> None:
    assert state_with_anna().keys[ANNA] == Key(name=ANNA, digest=DIGEST, scopes=("read",), created_at=MADE)


def test_scopes_are_kept_once_each_in_one_order() -> None:
    event = decided(State(), created(scopes=("read", "inference", "read")))
    assert event == KeyCreated(key=ANNA, digest=DIGEST, scopes=("inference", "read"))


@pytest.mark.parametrize(
    "command",
    [created(secret=b"another"), created("bert"), created(ANONYMOUS, b"another")],
    ids=["name taken", "secret taken", "name of nobody"],
)
def test_a_name_and_a_secret_are_given_once(command: CreateKey) -> None:
    event = decided(state_with_anna(), command)
    assert isinstance(event, CommandRejected)
    assert event.code == "duplicate_key"


def test_a_revoked_key_stays_revoked_and_keeps_its_name() -> None:
    state = state_with_anna()
    event = decided(state, RevokeKey(key=ANNA))
    assert event == KeyRevoked(key=ANNA)
    state = after(state, [event], REVOKED)
    assert state.keys[ANNA].revoked_at == REVOKED
    again, new = decided(state, RevokeKey(key=ANNA)), decided(state, created(secret=b"another"))
    assert isinstance(again, CommandRejected)
    assert isinstance(new, CommandRejected)
    assert (again.code, new.code) == ("already_revoked", "duplicate_key")


def test_a_key_that_is_not_there_cannot_be_revoked() -> None:
    event = decided(State(), RevokeKey(key=ANNA))
    assert isinstance(event, CommandRejected)
    assert event.code == "key_not_found"


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "a\nb", "a'b"])
def test_a_name_stands_anywhere_as_it_is(name: str) -> None:
    with pytest.raises(ValidationError):
        created(name)


@pytest.mark.parametrize(
    ("scopes", "reached"),
    [
        (("inference",), {"inference"}),
        (("read",), {"read"}),
        (("inference", "read"), {"inference", "read"}),
        (("admin",), {"inference", "read", "admin"}),
    ],
)
def test_what_each_scope_reaches(scopes: tuple[Scope, ...], reached: set[Scope]) -> None:
    key = Key(name=ANNA, digest=DIGEST, scopes=scopes, created_at=MADE)
    every: tuple[Scope, ...] = ("inference", "read", "admin")
    assert {scope for scope in every if key.allows({scope})} == reached
