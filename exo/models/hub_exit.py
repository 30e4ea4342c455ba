"""How the process that talks to the hub says of which kind a failure is, and the code that errors have for it."""

from collections.abc import Mapping

REFUSED, MISSING, UNREACHABLE = 1, 2, 3
"""Exit codes: the hub does not give it, does not have it, is not there."""

UNREACHABLE_CODE = "hub_unreachable"
CODES: Mapping[int | None, str] = {MISSING: "model_not_found", UNREACHABLE: UNREACHABLE_CODE, None: UNREACHABLE_CODE}
"""Of errors, by exit code; None: it was late."""
REFUSED_CODE = "hub_refused"
"""Of all others."""
