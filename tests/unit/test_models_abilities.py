"""What a model can do, by its files; and that a runner which loads it does just that."""

import json
from pathlib import Path

import pytest
from test_engine_tokenizer import make_folder

from exo.domain.model_card import Ability
from exo.errors import Rejected
from exo.models.abilities import read_abilities
from exo.models.catalog import catalog
from exo.models.templates import read_templates
from exo.runner.tokenizer import HuggingFaceTokenizer

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + PLAIN
HERMES = TOOLS + "{{ '' if messages else '<tool_call></tool_call>' }}"
SWITCH = "{% if enable_thinking is false %}{{ '' }}{% endif %}" + PLAIN
MISTRAL = TOOLS + "{{ '' if messages else '[TOOL_CALLS]' }}"
TAGS = PLAIN + "{{ '' if messages else '</think>' }}"
USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def tokens_of(folder: Path, *contents: str) -> Path:
    """A folder whose tokens besides those of text are these alone."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["added_tokens"] = [one for one in tokenizer["added_tokens"] if one["content"] in ("<end>", *contents)]
    file.write_text(json.dumps(tokenizer))
    return folder


def taken(folder: Path, **arguments: object) -> bool:
    """Whether a runner takes a chat with these."""
    try:
        HuggingFaceTokenizer(folder).encode_chat(USER, arguments)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize(
    ("template", "abilities"),
    [
        (PLAIN, ()),
        (HERMES, ("tools",)),
        (MISTRAL, ("tools",)),
        (SWITCH, ("thinking",)),
        (TAGS, ("thinking",)),
        (HERMES + SWITCH, ("tools", "thinking")),
        (None, ()),
    ],
)
def test_what_a_chat_template_has_a_place_for_is_what_a_runner_takes(
    tmp_path: Path, template: str | None, abilities: tuple[Ability, ...]
) -> None:
    folder = tokens_of(make_folder(tmp_path, template))
    assert read_abilities(folder) == abilities
    assert taken(folder, tools=[TOOL]) is ("tools" in abilities)
    assert taken(folder, enable_thinking=True, thinking=True) is ("thinking" in abilities)


def test_calls_that_nobody_could_read_are_no_ability(tmp_path: Path) -> None:
    assert read_abilities(tokens_of(make_folder(tmp_path, TOOLS))) == ()
    assert read_abilities(tokens_of(make_folder(tmp_path, TOOLS), "[TOOL_CALLS]")) == ("tools",)


def test_tokens_are_those_of_the_configuration_where_it_has_them(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, TOOLS)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "added_tokens_decoder": {"1": {"content": "<end>"}}}))
    assert read_abilities(folder) == ()
    file.write_text(json.dumps({**config, "added_tokens_decoder": {"1": {"content": "<|python_tag|>"}}}))
    assert read_abilities(folder) == ("tools",)


def test_gpt_oss_is_known_by_its_tokens(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, TOOLS)
    tokens = {str(at): {"content": name} for at, name in enumerate(("<|start|>", "<|channel|>", "<|message|>"))}
    config = {"chat_template": TOOLS, "added_tokens_decoder": tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_abilities(folder) == ("tools", "thinking")


def test_templates_are_found_where_transformers_finds_them(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, PLAIN)
    assert read_templates(folder) == {"default": PLAIN}
    listed = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": HERMES}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert read_templates(folder) == {"default": PLAIN, "tool_use": HERMES}
    assert read_abilities(tokens_of(folder)) == ("tools",)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": SWITCH}))
    assert read_templates(folder) == {"default": SWITCH}
    (folder / "chat_template.jinja").write_text(TAGS)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(HERMES)
    assert read_templates(folder) == {"default": TAGS, "tool_use": HERMES}
    assert read_abilities(folder) == ("tools", "thinking")


def test_a_model_that_was_trained_to_make_vectors_does_nothing_else(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, HERMES + SWITCH)
    (folder / "config.json").write_text("{}")
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling")]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    assert read_abilities(folder) == ("embedding",)
    (folder / "config.json").write_text(json.dumps({"is_causal": False}))
    assert "embedding" not in read_abilities(folder)


@pytest.mark.parametrize("content", ["no json", "[]", '{"added_tokens_decoder": 5, "chat_template": 7}'])
def test_files_that_make_no_sense_tell_of_no_ability(tmp_path: Path, content: str) -> None:
    folder = make_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text(content)
    assert read_abilities(folder) == ()


def test_the_catalog_says_what_its_models_can_do() -> None:
    by_family = {card.family: card.abilities for card in catalog()}
    assert by_family["gpt_oss"] == by_family["qwen3"] == ("tools", "thinking")
    assert by_family["qwen2"] == ("tools",)
    assert by_family["gemma2"] == ()
