"""Holds one generation to its constraint."""

from llguidance import LLMatcher

from exo.runner.structured.reasoning import Progress


class Guide:
    """Follows one generation, and says which tokens may come next. Belongs to one thread at a time.

    While the model reasons, all may. End tokens may come exactly when the answer is complete. Never raises: what goes
    wrong is the generation's `problem`, and from then on no token is held back.
    """

    __slots__ = ("_before", "_mask", "_matcher", "_progress", "grammar", "param", "problem", "taken")

    def __init__(self, matcher: LLMatcher, progress: Progress, param: str, grammar: str) -> None:
        self._matcher = matcher
        self._progress = self._before = progress
        self._mask: bytes | None = None
        self.param = param
        """The API's parameter that asked for it."""
        self.grammar = grammar
        """What the matcher was made of: llguidance's grammar of the answer."""
        self.taken = 0
        """Tokens that it has gone on with."""
        self.problem = ""
        """Why the constraint cannot be held any longer; empty while it can."""

    @property
    def progress(self) -> Progress:
        """How far the generation has come on its way to the answer."""
        return self._progress

    def take(self, token: int) -> None:
        """Goes on with the token that was chosen."""
        self.taken += 1
        self._before, self._progress = self._progress, self._progress.after(token)
        if self._has_answer_token():
            self._matcher.consume_token(token)
            self._mask = None

    def undo(self) -> None:
        """Takes the last token back; once, not twice in a row."""
        self.taken -= 1
        if self._has_answer_token():
            self._matcher.rollback(1)
            self._mask = None
        self._progress = self._before

    def allowed(self) -> bytes | None:
        """One byte a token, 0 for those that must not come next; None where all may."""
        if self._progress.stage == "reasoning":
            return None
        if self._mask is None and not self.problem:
            self._mask = self._compute()
        opens = self._progress.opens
        if self._mask is None or opens is None:
            return self._mask
        return self._mask[:opens] + b"\xff" + self._mask[opens + 1 :]

    def prepare(self) -> None:
        """Finds what the answer may begin with: the first mask takes longer than those that follow."""
        self._mask = self._compute()

    def _has_answer_token(self) -> bool:
        """Whether the token between before and now is the answer's."""
        return self._before.stage != "reasoning" and self._progress.stage == "answer"

    def _compute(self) -> bytes | None:
        mask = self._matcher.compute_logit_bias()
        if self._matcher.is_error() or not any(mask):
            self.problem = self._matcher.get_error() or "nothing can come next"
            return None
        return mask
