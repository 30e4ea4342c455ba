"""The grammar of all that a model may say, its reasoning before the answer included, in Lark: for engines that hold
answers to a grammar themselves and know nothing of reasoning. Pure."""

import json
from typing import cast

from exo.errors import Rejected
from exo.runner.structured.guide import Guide
from exo.runner.structured.reasoning import Reasoning

Grammars = dict[str, list[dict[str, object]]]


def whole_grammar(guide: Guide) -> str:
    """For a generation at its beginning.

    Raises Rejected, with the constraint's parameter, where the model's way to its answer has no such grammar.
    """
    answer = as_lark(guide.grammar)
    progress = guide.progress
    if progress.stage == "answer":
        return answer
    assert progress.reasoning is not None  # else the stage is the answer
    before = _before(progress.reasoning, guide.param)
    if progress.stage == "undecided":
        before = f"({before})?"
    return f"start: {before} answer\nanswer: %lark {{\n{answer}\n}}\n"


def as_lark(grammar: str) -> str:
    """A grammar of llguidance's, which may be JSON with one grammar in it, as a text in Lark."""
    if not grammar.lstrip().startswith("{"):
        return grammar
    (only,) = cast(Grammars, json.loads(grammar))["grammars"]
    lark = only.get("lark_grammar")
    return str(lark) if lark else f"start: %json {json.dumps(only['json_schema'], ensure_ascii=False)}"


def _before(reasoning: Reasoning, param: str) -> str:
    """What comes before the answer where the model reasons, up to the token that ends it."""
    if reasoning.header:
        return _channels(reasoning, param)
    inside = f"{_but(reasoning.closes)}* {_one(reasoning.closes)}"
    return inside if reasoning.opens is None else f"{_one(reasoning.opens)} {inside}"


def _channels(reasoning: Reasoning, param: str) -> str:
    """Channels one after the other, of which the last is the answer's: it begins after `closes` where the header's
    tokens came since the header's first was seen last."""
    if len(reasoning.header) != len(("channel", "its name")):
        raise Rejected(
            f"{param}: this model's channels have names of several tokens, which this engine cannot tell apart",
            code="invalid_response_format",
            param=param,
        )
    channel, name = reasoning.header
    rest = _but(channel)
    another = f"{_one(channel)} {_but(channel, name)} {rest}*"
    unnamed = _one(channel)
    unopened = f"{_one(channel)} {_one(name)} {_but(channel, reasoning.closes)}*"
    last = f"{unopened} {_one(reasoning.closes)}"
    return f"{rest}* ({another} | {unnamed} | {unopened})* {last}"


def _one(token: int) -> str:
    return f"<[{token}]>"


def _but(*tokens: int) -> str:
    return f"<[^{','.join(map(str, sorted(tokens)))}]>"
