"""Whether a model can be told to think, and how much: what it would not heed is refused."""

from collections.abc import Mapping

from exo.errors import Rejected
from exo.models.abilities import can_think, has_switch
from exo.models.output_format import OutputFormat
from exo.models.templates import names

EFFORT = "reasoning_effort"
THINKING = "enable_thinking"
USUAL_EFFORT = "medium"
"""What is thought where nothing is said."""


def check_thinking(given: Mapping[str, object], template: str, form: OutputFormat) -> None:
    """Raises Rejected for a switch that a chat template has no place for. `form`: of answers to the prompt made."""
    if given.get(EFFORT, USUAL_EFFORT) != USUAL_EFFORT and not names(template, EFFORT):
        raise _refused("this model has no efforts of reasoning: leave it out", EFFORT)
    wanted = given.get(THINKING)
    if wanted and not can_think(template, form):
        raise _refused("this model does not think before it answers, and cannot be told to", THINKING)
    if wanted is False and not has_switch(template) and (form.starts_inside or form.harmony):
        raise _refused("this model always thinks before it answers, and cannot be told not to", THINKING)


def _refused(reason: str, param: str) -> Rejected:
    return Rejected(reason, code="unsupported_parameter", param=param)
