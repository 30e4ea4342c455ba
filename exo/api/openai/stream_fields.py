"""The parameters that say whether an answer comes as it is generated."""

from typing import Literal

from pydantic import ValidationInfo, field_validator

from exo.api.bodies.strict import Strict, check_streaming


class StreamOptions(Strict):
    """What a stream contains besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class StreamFields(Strict):
    """The same for chat completions and completions."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _streaming(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None:
            check_streaming(info)
        return value

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk that holds the usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True
