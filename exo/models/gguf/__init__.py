"""GGUF files of the llama family, and the way from one to a model folder."""
