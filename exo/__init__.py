"""exo: one AI cluster from the machines you already own, on an event-sourced core."""

__version__ = "0.1.0"
