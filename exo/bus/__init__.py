"""NATS: everything that travels between processes. The only part of exo that imports the client."""
