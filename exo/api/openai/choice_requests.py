"""`n`: so many answers to one request."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from exo.domain.messages.requests import GenerationRequest

CHOICES_MOST = 128
"""OpenAI's limit."""
SEED_BYTES = 8

ChoiceCount = Annotated[int, Field(ge=1, le=CHOICES_MOST)]


def each_choice(request: GenerationRequest, count: int) -> Sequence[GenerationRequest]:
    """The payload of each of `count` answers: the same, but for a seed, from which each has its own."""
    seed = request.params.seed
    if seed is None:
        return [request] * count
    return [
        request.replaced({"params": request.params.replaced({"seed": derived_seed(seed, index)})})
        for index in range(count)
    ]


def derived_seed(seed: int, index: int) -> int:
    """The seed of a choice: the first has the request's own, so that it is the answer that would come alone."""
    if index == 0:
        return seed
    return int.from_bytes(blake2b(f"{seed}-{index}".encode(), digest_size=SEED_BYTES).digest())
