"""By which names an API may be called that asks for no key."""

import pytest

from exo.api.http.hosts import allowed_hosts, host_in, is_loopback
from exo.errors import Rejected


@pytest.mark.parametrize(
    ("sent", "host"),
    [
        ("localhost:52415", "localhost"),
        ("LocalHost.", "localhost"),
        ("[::1]:52415", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("evil.example:80", "evil.example"),
        ("[::1", "[::1"),
        ("", ""),
    ],
)
def test_a_name_is_told_from_its_port(sent: str, host: str) -> None:
    assert host_in(sent) == host


@pytest.mark.parametrize("host", ["localhost", "exo.localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_what_stands_for_this_machine_everywhere_may_call(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "notlocalhost", "192.168.1.5", "::2", "", "0.0.0.0"]
)
def test_another_name_is_refused_with_the_setting_that_allows_it(host: str) -> None:
    hosts = allowed_hosts("127.0.0.1", (), is_exposed=False)
    with pytest.raises(Rejected, match="EXO_ALLOWED_HOSTS") as refused:
        hosts.check([(b"host", host.encode() if ":" not in host else f"[{host}]".encode())])
    assert refused.value.code == "foreign_host"


@pytest.mark.parametrize("sent", [b"chat.example", b"Chat.Example:443", b"Box:52415", b"localhost"])
def test_names_that_are_set_and_the_one_that_it_listens_at_may_call(sent: bytes) -> None:
    allowed_hosts("box", ("chat.EXAMPLE",), is_exposed=False).check([(b"accept", b"*/*"), (b"host", sent)])


def test_who_sends_no_name_is_no_page() -> None:
    allowed_hosts("127.0.0.1", (), is_exposed=False).check([])


@pytest.mark.parametrize(
    ("allowed", "is_exposed", "is_open"), [((), True, True), (("a",), True, False), (("*",), False, True)]
)
def test_any_name_will_do_where_others_reach_it_or_all_are_allowed(
    allowed: tuple[str, ...], is_exposed: bool, is_open: bool
) -> None:
    assert allowed_hosts("0.0.0.0", allowed, is_exposed=is_exposed).is_open is is_open
