"""The address of NATS, as people may see it."""

from urllib.parse import urlsplit


def without_password(url: str) -> str:
    """An address without who logs in there."""
    address = urlsplit(url)
    return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
