"""The runner: one process that holds one shard of one model in one engine, and generates."""
