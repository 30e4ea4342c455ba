"""Client packages that keep connections for as long as their process lives."""

import pytest

KEEPS_CONNECTIONS = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("connections_let_go"),
]
"""Marks of modules that use one: what it keeps is let go at the module's end, and not in the middle of another test."""
