"""From tokens to what a client sees; the same for every engine."""
