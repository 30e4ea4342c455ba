"""One error, as a client is told of it."""

from dataclasses import dataclass

from exo.api.http.codes import HEADERS, RETRY_AFTER, STATUSES


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, before it is JSON in one dialect or another."""

    code: str
    message: str
    param: str | None = None
    status: int | None = None
    """None: by the code."""
    retry_after: int | None = None
    """Seconds; None: by the code."""
    allow: str = ""
    """The methods that there are, where it is another one that was asked for."""

    @property
    def http_status(self) -> int:
        """The response's status."""
        return self.status or STATUSES.get(self.code, 500)

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`, where asking again may help; `Allow`, where another method would; what the code brings."""
        found = dict([HEADERS[self.code]] if self.code in HEADERS else [])
        seconds = self.retry_after or RETRY_AFTER.get(self.code)
        if seconds is not None:
            found["retry-after"] = str(seconds)
        if self.allow:
            found["allow"] = self.allow
        return found
