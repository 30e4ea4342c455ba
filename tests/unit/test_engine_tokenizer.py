"""The tokenizer of a model folder, with a byte-level one made for the test."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from exo.domain.constraint import JsonObject
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.errors import Fatal, Rejected
from exo.runner.prompts import encode
from exo.runner.tokenizer import HuggingFaceTokenizer

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}{{ raise_exception('tools are not for this model') }}{% endif %}"
    "{{ '<' + message['role'] + '>' + message['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def make_folder(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A tokenizer whose tokens are bytes, and `<end>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<end>", "[TOOL_CALLS]", "<think>", "</think>"])
    fast.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    config |= {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, 7]}))
    return folder


@pytest.fixture
def tokenizer(tmp_path: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(make_folder(tmp_path))


def decode(tokenizer: HuggingFaceTokenizer, tokens: list[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [detokenizer.push(token) for token in tokens]


def test_what_ends_every_text_is_what_the_tokenizer_puts_there(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert HuggingFaceTokenizer(folder).text_ending == []
    fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = fast.token_to_id("<end>")
    fast.post_processor = processors.TemplateProcessing("<think> $A <end>", None, [("<think>", 258), ("<end>", end)])
    fast.save(str(folder / "tokenizer.json"))
    assert HuggingFaceTokenizer(folder).text_ending == [end]


def test_a_chat_becomes_tokens_and_ends_where_the_assistant_begins(tokenizer: HuggingFaceTokenizer) -> None:
    tokens = tokenizer.encode_chat([{"role": "user", "content": "Hé"}])
    assert "".join(decode(tokenizer, tokens)) == "<user>Hé<assistant>"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ({"role": "tool", "content": "x"}, "tools are not for this model"),
        ({"content": "x"}, "template"),
        ({"role": "user", "content": "\ud800"}, "template"),
    ],
)
def test_messages_that_the_model_does_not_take_are_refused_with_the_cause(
    tokenizer: HuggingFaceTokenizer, message: dict[str, object], cause: str
) -> None:
    with pytest.raises(Rejected, match=cause):
        tokenizer.encode_chat([message])


def test_a_character_cut_over_tokens_comes_whole(tokenizer: HuggingFaceTokenizer) -> None:
    tokens = tokenizer.encode_chat([{"role": "user", "content": "a🚀b"}])[6:-11]
    assert decode(tokenizer, tokens) == ["a", "", "", "", "🚀", "b", ""]


def test_an_incomplete_character_is_dropped_at_the_end(tokenizer: HuggingFaceTokenizer) -> None:
    tokens = tokenizer.encode_chat([{"role": "user", "content": "🚀"}])[6:9]
    assert decode(tokenizer, tokens) == ["", "", ""]


def test_a_vocabulary_with_byte_fallback_has_the_bytes_of_each_token_and_bears_any_of_them(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁a": 256}
    fast = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fast.add_special_tokens(["<end>"])
    fast.save(str(folder / "tokenizer.json"))
    tokenizer = HuggingFaceTokenizer(folder)
    assert [tokenizer.token_bytes(token) for token in (0xE2, 0x0A, 256)] == [b"\xe2", b"\n", b" a"]
    assert decode(tokenizer, [256, 0xE2, 0x98, 0x82, 0xF4, 0x41, 0xFF]) == [" a", "", "", "☂", "", "\ufffdA", "\ufffd"]


def test_end_tokens_are_the_tokenizers_and_the_models(tokenizer: HuggingFaceTokenizer) -> None:
    assert tokenizer.end_tokens == {256, 7}


def test_a_model_without_a_chat_template_refuses_chats(tmp_path: Path) -> None:
    plain = HuggingFaceTokenizer(make_folder(tmp_path, template=None))
    with pytest.raises(Rejected) as refused:
        plain.encode_chat([{"role": "user", "content": "x"}])
    assert refused.value.code == "no_chat_template"


def test_a_folder_without_a_tokenizer_is_fatal(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="tokenizer"):
        HuggingFaceTokenizer(tmp_path)


TOOLS_TEMPLATE = TEMPLATE.replace(
    "{% if add_generation_prompt %}",
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking %}{{ '<think>' }}{% endif %}"
    "{% if add_generation_prompt %}",
)
TOOL = {"type": "function", "function": {"name": "now", "parameters": {}}}
USER = [{"role": "user", "content": "x"}]


def test_tools_and_switches_reach_the_template(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(make_folder(tmp_path, TOOLS_TEMPLATE))
    tokens = tokenizer.encode_chat(USER, {"tools": [TOOL], "enable_thinking": True})
    detokenizer = tokenizer.detokenizer(["<think>"])
    text = "".join(detokenizer.push(token) for token in tokens)
    assert '"name": "now"' in text
    assert text.endswith("<think><assistant>")


def test_tools_are_refused_where_the_template_has_no_place_for_them(tokenizer: HuggingFaceTokenizer) -> None:
    with pytest.raises(Rejected) as caught:
        tokenizer.encode_chat(USER, {"tools": [TOOL]})
    assert (caught.value.code, caught.value.param) == ("tools_not_supported", "tools")


FORCED = TEMPLATE.replace("<assistant>", "<assistant><think>")
SILENT = TEMPLATE.replace("<assistant>", "<assistant></think>")


@pytest.mark.parametrize(
    ("template", "given", "param"),
    [
        (TEMPLATE, {"reasoning_effort": "high"}, "reasoning_effort"),
        (TEMPLATE, {"reasoning_effort": "medium"}, None),
        (TEMPLATE + "{# effort #}{% if reasoning_effort %}{% endif %}", {"reasoning_effort": "high"}, None),
        (FORCED, {"enable_thinking": True}, None),
        (FORCED, {"enable_thinking": False}, "enable_thinking"),
        (FORCED + "{% if enable_thinking %}{% endif %}", {"enable_thinking": False}, None),
        (SILENT, {"enable_thinking": False}, None),
        (TOOLS_TEMPLATE, {"enable_thinking": False}, None),
    ],
)
def test_a_switch_that_the_model_would_not_heed_is_refused(
    tmp_path: Path, template: str, given: dict[str, object], param: str | None
) -> None:
    tokenizer = HuggingFaceTokenizer(make_folder(tmp_path, template))
    if param is None:
        assert tokenizer.encode_chat(USER, given)
        return
    with pytest.raises(Rejected) as caught:
        tokenizer.encode_chat(USER, given)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)


@pytest.mark.parametrize(
    ("asked", "param"),
    [({"reasoning_effort": "none"}, "reasoning_effort"), ({"enable_thinking": False}, "enable_thinking")],
)
def test_a_model_that_always_thinks_names_what_told_it_not_to(
    tmp_path: Path, asked: dict[str, object], param: str
) -> None:
    tokenizer = HuggingFaceTokenizer(make_folder(tmp_path, FORCED))
    request = GenerationRequest.model_validate({"messages": USER, "params": {}, **asked})
    with pytest.raises(Rejected, match="always thinks") as caught:
        encode(request, tokenizer)
    assert caught.value.param == param


def test_arguments_are_written_out_for_a_template_that_joins_them_to_text(tmp_path: Path) -> None:
    template = "{% for message in messages %}{% for call in message.tool_calls or [] %}"
    template += "{{ '<' + call.function.name + '>' + call.function.arguments }}{% endfor %}{% endfor %}"
    tokenizer = HuggingFaceTokenizer(make_folder(tmp_path, template))
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": {"zone": "UTC"}}}
    tokens = tokenizer.encode_chat([*USER, {"role": "assistant", "content": "", "tool_calls": [call]}])
    assert "".join(decode(tokenizer, tokens)) == '<now>{"zone": "UTC"}'


def test_a_special_token_is_shown_where_it_is_a_marker(tokenizer: HuggingFaceTokenizer) -> None:
    tokens = [257, *tokenizer.encode_chat(USER)[:3], 256]
    shown, hidden = tokenizer.detokenizer(["[TOOL_CALLS]"]), tokenizer.detokenizer()
    assert "".join(shown.push(token) for token in tokens) == "[TOOL_CALLS]<us"
    assert "".join(hidden.push(token) for token in tokens) == "<us"
    assert (shown.marker(257), shown.marker(256), hidden.marker(257)) == ("[TOOL_CALLS]", "", "")


def test_the_format_comes_from_the_folder_and_the_prompts_end(tokenizer: HuggingFaceTokenizer) -> None:
    prompt = tokenizer.encode_chat(USER)
    form = tokenizer.output_format(prompt)
    assert (form.tools, form.think and form.think.open, form.starts_inside) == ("mistral_v11", "<think>", False)
    assert tokenizer.output_format([*prompt, 258]).starts_inside
    assert not tokenizer.output_format([*prompt, 258, 259]).starts_inside
    assert tokenizer.harmony_parsers is None


def test_a_message_that_ends_like_a_prompt_that_opens_reasoning_does_not_free_the_answer(
    tmp_path: Path,
) -> None:
    tokenizer = HuggingFaceTokenizer(make_folder(tmp_path, TEMPLATE.replace("<assistant>", ">")))
    request = GenerationRequest(messages=(), params=SamplingParams(constraint=JsonObject()))
    prompt = tokenizer.encode_chat([{"role": "user", "content": "x<think>"}])
    assert 258 in prompt[-4:]
    guide = tokenizer.guide(request, prompt)
    assert guide is not None
    allowed = guide.allowed()
    assert allowed is not None
    (brace,), (letter,) = (tokenizer.encode_chat([{"role": "user", "content": one}])[6:-2] for one in "{x")
    assert (bool(allowed[258]), bool(allowed[brace]), bool(allowed[letter])) == (True, True, False)
    opened = tokenizer.guide(request, [*prompt, 258])
    assert opened is not None
    assert opened.allowed() is None
