"""How many tokens vLLM computes in one step."""

import torch

ON_CPU = 256
"""Running streams stand still for a step, and a client hears of its prompt after each: here that is about a second."""


def most_step_tokens() -> int | None:
    """Those of decoding requests and of prompts together; None is vLLM's own number for a GPU."""
    return None if torch.cuda.is_available() else ON_CPU
