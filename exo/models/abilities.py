"""What a model can do besides writing text, by what its makers ship with it: known before it is loaded."""

from collections.abc import Collection, Mapping
from pathlib import Path

from exo.domain.model_card import Ability
from exo.errors import Rejected
from exo.models.detect_format import detect_format
from exo.models.folder import CONFIG_FILE
from exo.models.json_file import Json, JsonObject, read_object
from exo.models.output_format import OutputFormat
from exo.models.templates import (
    DEFAULT,
    FOR_TOOLS,
    OLD_TEMPLATE_FILE,
    TEMPLATE_FILE,
    TOKENIZER_CONFIG,
    names,
    read_templates,
)
from exo.models.vector_form import MODULES_FILE, POOLING_FILE, read_vector_form

FILES = (CONFIG_FILE, TOKENIZER_CONFIG, TEMPLATE_FILE, OLD_TEMPLATE_FILE, MODULES_FILE, POOLING_FILE)
"""The small files that tell of them."""
SWITCHES = ("enable_thinking", "thinking")
"""By which a chat template can be told whether the model is to think; DeepSeek's templates have the second."""


def read_abilities(folder: Path) -> tuple[Ability, ...]:
    """By a model's files. What cannot be read tells of none: whoever loads the model is told what is wrong."""
    vectors = read_vector_form(folder)
    if vectors.is_trained and not vectors.refusal:
        return ("embedding",)
    try:
        templates, tokens = read_templates(folder), _added_tokens(folder)
    except Rejected:
        return ()
    return abilities_of(templates, tokens)


def abilities_of(templates: Mapping[str, str], added_tokens: Collection[str]) -> tuple[Ability, ...]:
    """Of a model that was trained to write, by its chat templates and its tokens besides those of ordinary text."""
    form = detect_format("\n".join(templates.values()), added_tokens)
    usual = templates.get(DEFAULT, "")
    found: list[Ability] = []
    if names(templates.get(FOR_TOOLS, usual), "tools") and (form.tools or form.harmony):
        found.append("tools")
    if usual and can_think(usual, form):
        found.append("thinking")
    return tuple(found)


def can_think(template: str, form: OutputFormat) -> bool:
    """Whether a model thinks before it answers, or can be told to."""
    return has_switch(template) or form.think is not None or form.harmony


def has_switch(template: str) -> bool:
    """Whether a chat template can be told whether the model is to think."""
    return any(names(template, switch) for switch in SWITCHES)


def _added_tokens(folder: Path) -> Collection[str]:
    """By the tokenizer's configuration, which is small; some have them in the tokenizer's own file alone."""
    decoder = read_object(folder / TOKENIZER_CONFIG).get("added_tokens_decoder")
    if isinstance(decoder, dict):
        return _contents(list(decoder.values()))
    file = folder / "tokenizer.json"
    return _contents(read_object(file).get("added_tokens")) if file.is_file() else set()


def _contents(tokens: Json) -> set[str]:
    listed: list[JsonObject] = [one for one in tokens if isinstance(one, dict)] if isinstance(tokens, list) else []
    return {content for one in listed if isinstance(content := one.get("content"), str)}
