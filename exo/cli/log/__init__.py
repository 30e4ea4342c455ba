"""`exo log`: the commands that read the log, each in a module."""
