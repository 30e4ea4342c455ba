"""Keys and values in memory that grows with what is asked for, and shrinks when nothing is."""
