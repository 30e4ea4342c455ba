"""Harmony, the form of gpt-oss: messages with a channel and, for calls, a recipient."""
