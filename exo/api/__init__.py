"""The HTTP API: OpenAI's, Anthropic's and Ollama's endpoints, and the cluster's own."""
