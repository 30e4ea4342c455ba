"""The errors that cross a part's border. Three kinds, by what the receiver does about them."""


class ExoError(Exception):
    """Root of all errors that exo raises on purpose."""


class Rejected(ExoError):  # noqa: N818  (the design's word)
    """The caller's fault. Its message is acknowledged and never tried again; over HTTP it is a 4xx."""

    def __init__(
        self, reason: str, *, code: str = "invalid_request", param: str | None = None, retry_after: int | None = None
    ) -> None:
        """`retry_after`: seconds after which the same may be granted; None: as the code has it."""
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.param = param
        self.retry_after = retry_after


class Retryable(ExoError):  # noqa: N818
    """Nobody's fault and it may pass: the message comes again later."""


class Fatal(ExoError):  # noqa: N818
    """This process cannot go on. It says why in one line and exits with `exit_code`."""

    exit_code = 1


def without_prefix(message: str) -> str:
    """What a validator of ours said, without what pydantic puts before it."""
    return message.removeprefix("Value error, ")


def one_line(error: BaseException) -> str:
    """The kind and the text of an error that nobody foresaw, as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
