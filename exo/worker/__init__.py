"""The worker: looks at its machine, and runs there what State wants to run there."""
