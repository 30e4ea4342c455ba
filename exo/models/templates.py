"""The chat templates of a model folder, as text, and what they have a place for."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from exo.errors import Rejected
from exo.models.json_file import Json, read_object

DEFAULT = "default"
FOR_TOOLS = "tool_use"
"""The template that transformers takes where there are tools, of models that have one for that."""
TEMPLATE_FILE = "chat_template.jinja"
OLD_TEMPLATE_FILE = "chat_template.json"
MORE_TEMPLATES = "additional_chat_templates"
TOKENIZER_CONFIG = "tokenizer_config.json"

_EXPRESSION = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")


@cache
def names(template: str, variable: str) -> bool:
    """Whether the template has a place for a variable, such as `tools`: whether it names it outside of texts."""
    expressions = (_LITERAL.sub("", found.group()) for found in _EXPRESSION.finditer(template))
    return any(re.search(rf"\b{variable}\b", expression) for expression in expressions)


def read_templates(folder: Path) -> Mapping[str, str]:
    """The templates by name; most models have one, `default`. A file of its own goes before the configuration, as in
    transformers. Raises Rejected for what cannot be read."""
    own = dict(_own(folder))
    if DEFAULT in own:
        return own
    old = folder / OLD_TEMPLATE_FILE
    given = read_object(old if old.is_file() else folder / TOKENIZER_CONFIG).get("chat_template")
    return {**dict(_given(given)), **own}


def _own(folder: Path) -> Iterator[tuple[str, str]]:
    more = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))
    for name, file in ((DEFAULT, folder / TEMPLATE_FILE), *((file.stem, file) for file in more)):
        if file.is_file():
            yield name, _text(file)


def _given(given: Json) -> Iterator[tuple[str, str]]:
    """A text, or a list of templates with their names."""
    if isinstance(given, str):
        yield DEFAULT, given
    elif isinstance(given, list):
        for one in given:
            if isinstance(one, dict):
                yield str(one.get("name")), str(one.get("template"))


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise Rejected(f"{file} cannot be read ({error}): fetch it again") from error
