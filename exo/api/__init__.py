"""The HTTP API: OpenAI's chat endpoints, and the cluster's own."""
