"""Answers of a given form: what a constraint allows, token by token. Engine-neutral; the one place of llguidance."""
