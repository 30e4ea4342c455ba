"""Memory that vLLM may still take on this process's device."""

import torch

from exo.node.container import available_memory


def free_bytes() -> int:
    """Bytes free on the GPU; on the CPU, and on a GPU with the system's memory, what the system calls available."""
    if not torch.cuda.is_available() or torch.cuda.get_device_properties().is_integrated:
        return available_memory()
    return torch.cuda.mem_get_info()[0]
