"""The MLX engine: Metal, CUDA or CPU."""
