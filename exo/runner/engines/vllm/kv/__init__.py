"""States of prompts handed out and taken in by vLLM, over its interface for KV connectors."""
