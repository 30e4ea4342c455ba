"""The tokenizer of a Hugging Face model folder. The one place that knows of transformers."""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from exo.domain.messages.requests import GenerationRequest
from exo.errors import Fatal, Rejected, one_line
from exo.models.detect_format import detect_format, opens_reasoning
from exo.models.json_file import read_object
from exo.models.output_format import OutputFormat
from exo.models.templates import DEFAULT, names
from exo.runner.chat_templates import check_templates
from exo.runner.detokenizers import ByteFallbackDetokenizer, StreamDetokenizer, byte_tokens
from exo.runner.history import Message, with_known_ids, with_written_arguments
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.vocabulary import OpenParser, harmony_parsers
from exo.runner.prompts import form_of
from exo.runner.structured.compiling import Constraints
from exo.runner.structured.guide import Guide
from exo.runner.structured.threads import started
from exo.runner.structured.vocabulary import Vocabulary, VocabularySource
from exo.runner.thinking import check_thinking

# Read while transformers is imported: without it, it warns that PyTorch is missing, which this project never uses.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
# It would warn of prompts that are too long, which the engine refuses.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer

PROMPT_END = 16
"""Tokens of a prompt's end that are looked at for whether it opens the reasoning, and what a text after it begins
with."""


class HuggingFaceTokenizer:
    """Chat template, encoding and decoding as the model's authors ship them.

    Reads `folder` only: no network, and no code from the folder is run. Raises Fatal where it holds no fast
    tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        try:
            # transformers' types are partial; everything that leaves this class is checked or converted.
            loaded = cast(Any, AutoTokenizer).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # of any kind: it computes with what the files say
            raise Fatal(_fault(folder, error)) from error
        fast: object = getattr(loaded, "backend_tokenizer", None)
        if not isinstance(fast, FastTokenizer):
            raise Fatal(f"the tokenizer in {folder} has no tokenizer.json, which streaming needs")
        self._chat: Any = loaded
        self._fast = fast
        self._end_tokens = _end_tokens(folder, loaded.eos_token_id)
        check_templates(folder, self._templates(), self._try_template)
        self._added = fast.get_added_tokens_decoder()
        self._byte_tokens = byte_tokens(fast)
        self._shown: dict[frozenset[str], Mapping[int, str]] = {}
        """Special tokens that stand for markers, by the markers: a model has few sets of them."""
        texts = {token.content for token in self._added.values()}
        self._format = detect_format("\n".join(self._templates().values()), texts)
        vocabulary = fast.get_vocab(with_added_tokens=False) if self._format.harmony else {}
        self._harmony_parsers = harmony_parsers(vocabulary) if vocabulary else None
        # It takes up to a second, and is not needed before the weights are there.
        self._vocabulary = started(partial(Vocabulary, fast.to_str(), self._end_tokens), "vocabulary")

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokenizer's own end token and those of `config.json` and `generation_config.json`."""
        return self._end_tokens

    def encode_chat(self, messages: Sequence[Message], arguments: Mapping[str, object] | None = None) -> list[int]:
        """The prompt's tokens by the model's chat template, ending where the assistant begins.

        Raises Rejected where there is no template, where the template refuses the messages (a role that it does not
        know, an order that it does not allow), or where there are tools, or a switch, that it has no place for.
        """
        given = arguments or {}
        if not self._chat.chat_template:
            raise Rejected("the model has no chat template", code="no_chat_template")
        template = str(self._chat.get_chat_template(None, given.get("tools")))
        if given.get("tools") and not names(template, "tools"):
            raise Rejected(
                "this model's chat template has no place for tools: ask a model that was trained to call tools, or "
                "leave them out",
                code="tools_not_supported",
                param="tools",
            )
        conversation = with_known_ids(messages, template)
        try:
            prompt = self._rendered(conversation, given)
        except Exception as error:  # of any kind: a template computes
            raise Rejected(f"the model's chat template refuses the messages: {error}", param="messages") from error
        check_thinking(given, template, self.output_format(prompt))
        return prompt

    def encode_text(self, text: str) -> list[int]:
        """A text's tokens as it stands, with what the model wants before any text. Names of special tokens are them."""
        return self._fast.encode(text).ids

    @property
    def text_ending(self) -> Sequence[int]:
        """The tokens that `encode_text` puts after every text: of those for embedding, one that ends it."""
        encoded = self._fast.encode("a")
        added = list(takewhile(bool, reversed(encoded.special_tokens_mask)))
        return encoded.ids[len(encoded.ids) - len(added) :]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self._fast.decode(list(tokens), skip_special_tokens=True)

    def output_format(self, prompt: Sequence[int]) -> OutputFormat:
        """How what follows this prompt is to be read."""
        end = self._fast.decode(list(prompt[-PROMPT_END:]), skip_special_tokens=False)
        return opens_reasoning(self._format, end)

    def detokenizer(self, markers: Collection[str] = (), after: Sequence[int] = ()) -> Detokenizer:
        """A fresh one that leaves special tokens out, except those that are markers or part of one.

        `after`: tokens of the text that it continues, where it does, so that a space between the two is kept.
        """
        wanted = frozenset(markers)
        if wanted not in self._shown:
            self._shown[wanted] = {
                number: token.content
                for number, token in self._added.items()
                if token.special and any(token.content in marker for marker in wanted)
            }
        if self._byte_tokens:
            return ByteFallbackDetokenizer(self._fast, self._byte_tokens, self._shown[wanted], is_first=not after)
        return StreamDetokenizer(self._fast, self._shown[wanted], self._whole_end(after))

    @property
    def harmony_parsers(self) -> OpenParser | None:
        """What reads Harmony from tokens, for a model of gpt-oss' vocabulary."""
        return self._harmony_parsers

    @property
    def vocabulary_size(self) -> int:
        """Tokens are numbered from 0 up to this."""
        return self._vocabulary.result().size

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text, a special one its name; empty for a number that stands for none."""
        return self._vocabulary.result().bytes_of(token)

    def vocabulary_source(self) -> VocabularySource:
        """This tokenizer's, as it is after all files of the folder were read."""
        return VocabularySource(tokenizer_json=self._fast.to_str(), end_tokens=tuple(self._end_tokens))

    def guide(self, request: GenerationRequest, prompt: Sequence[int]) -> Guide | None:
        """What holds the answer to this prompt to what the request demands. Raises Rejected where nothing can."""
        constraints = Constraints(self._vocabulary.result(), form_of(request, prompt, self))
        wanted = constraints.wanted(request)
        return None if wanted is None else constraints.guide(wanted, prompt)

    def _whole_end(self, tokens: Sequence[int]) -> list[int]:
        """Some of the last tokens; none where the text ends in the middle of a character."""
        end = list(tokens[-PROMPT_END:])
        return [] if self.decode(end).endswith("\ufffd") else end

    def _rendered(self, conversation: Sequence[Message], arguments: Mapping[str, object]) -> list[int]:
        try:
            tokens = self._chat.apply_chat_template(
                conversation, add_generation_prompt=True, return_dict=False, **arguments
            )
        except TypeError:
            written = with_written_arguments(conversation)
            if written == conversation:
                raise
            tokens = self._chat.apply_chat_template(written, add_generation_prompt=True, return_dict=False, **arguments)
        return [int(token) for token in tokens]

    def _templates(self) -> dict[str, str]:
        """The chat templates by name; most models have one, `default`."""
        template: object = self._chat.chat_template
        if isinstance(template, Mapping):
            return {name: str(text) for name, text in cast(Mapping[str, object], template).items()}
        return {DEFAULT: str(template)} if template else {}

    def _try_template(self, template: str) -> None:
        conversation = [{"role": "user", "content": "Hello"}]
        self._chat.apply_chat_template(conversation, chat_template=template, add_generation_prompt=True, tokenize=False)


def _end_tokens(folder: Path, own: int | None) -> frozenset[int]:
    """End tokens; `eos_token_id` in the configuration files is one id or a list of them. Raises Fatal for a file that
    is no JSON object."""
    found: list[object] = [own]
    for name in ("config.json", "generation_config.json"):
        if not (folder / name).exists():
            continue
        try:
            listed = read_object(folder / name).get("eos_token_id")
        except Rejected as error:
            raise Fatal(error.reason) from error
        found += cast(list[object], listed) if isinstance(listed, list) else [listed]
    return frozenset(token for token in found if isinstance(token, int))


def _fault(folder: Path, error: Exception) -> str:
    """Which file it is that makes no tokenizer: the first of them that is none by itself, else all of them."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        try:
            if (folder / name).exists():
                read_object(folder / name)
        except Rejected as refused:
            return refused.reason
    file = folder / "tokenizer.json"
    try:
        if file.exists():
            FastTokenizer.from_file(str(file))
    except Exception as own:  # the library raises nothing narrower
        return f"{file} is no tokenizer ({own}): fetch it again"
    return (
        f"no usable tokenizer in {folder}: tokenizer.json, tokenizer_config.json or config.json makes no sense "
        f"({one_line(error)}): fetch the model again"
    )
