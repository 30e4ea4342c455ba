"""litellm for tests: untyped, since it types every answer as maybe a stream, and without what it leaves behind."""

from collections.abc import Callable
from typing import Any

import litellm
import pytest
from client_packages import KEEPS_CONNECTIONS

complete: Callable[..., Any] = litellm.completion
complete_unblocked: Callable[..., Any] = litellm.acompletion
embed: Callable[..., Any] = litellm.embedding
put_together: Callable[..., Any] = litellm.stream_chunk_builder  # pyright: ignore[reportUnknownVariableType]  its lists

WITH_LITELLM = [
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.usefixtures("litellm_cleared"),
    *KEEPS_CONNECTIONS,
]
"""Marks of modules that use it: pydantic warns of what it does, and it keeps connections for ever."""
