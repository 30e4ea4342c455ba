"""Calls of tools, in the forms in which each family of models writes them."""
