"""The pure core: messages, State, and the functions that turn one into the other. No clock, no I/O, no randomness."""
