"""The engine on vLLM: CUDA where there is a GPU, the CPU elsewhere."""
