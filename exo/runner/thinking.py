"""Whether a model can be told to think, and how much: what it would not heed is refused."""

from collections.abc import Mapping

from exo.errors import Rejected
from exo.runner.history import names
from exo.runner.output.format import OutputFormat

EFFORT = "reasoning_effort"
USUAL_EFFORT = "medium"
"""What is thought where nothing is said."""


def check_thinking(given: Mapping[str, object], template: str, form: OutputFormat) -> None:
    """Raises Rejected for a switch that a chat template has no place for. `form`: of answers to the prompt made."""
    if given.get(EFFORT, USUAL_EFFORT) != USUAL_EFFORT and not names(template, EFFORT):
        raise _refused("this model has no efforts of reasoning: leave it out", EFFORT)
    wanted = given.get("enable_thinking")
    if wanted is None or names(template, "enable_thinking") or names(template, "thinking"):
        return
    if wanted and form.think is None and not form.harmony:
        raise _refused("this model does not think before it answers: leave 'enable_thinking' out", "enable_thinking")
    if not wanted and (form.starts_inside or form.harmony):
        reason = "this model always thinks before it answers: 'enable_thinking' and the effort 'none' cannot stop it"
        raise _refused(reason, "enable_thinking")


def _refused(reason: str, param: str) -> Rejected:
    return Rejected(reason, code="unsupported_parameter", param=param)
