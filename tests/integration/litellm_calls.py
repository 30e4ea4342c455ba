"""litellm for tests: untyped, since it types every answer as maybe a stream, and without what it leaves behind."""

import gc
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import litellm
import pytest

complete: Callable[..., Any] = litellm.completion
complete_unblocked: Callable[..., Any] = litellm.acompletion
embed: Callable[..., Any] = litellm.embedding
put_together: Callable[..., Any] = litellm.stream_chunk_builder  # pyright: ignore[reportUnknownVariableType]  its lists

WITH_LITELLM = [
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("litellm_cleared"),
]
"""Marks of modules that use it: pydantic warns of what it does, and it keeps connections for ever."""


@contextmanager
def cleared() -> Generator[None]:
    """At the end litellm's connections are let go here, and not in the middle of another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        litellm.in_memory_llm_clients_cache.flush_cache()
        gc.collect()
