"""The tokenizer in a GGUF file's metadata, as a `tokenizer.json`.

transformers has such a converter too. It is not used: it knows no `smollm` (digits would stay together), puts no
space after special tokens where llama.cpp does, and needs torch and seconds to be imported.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from exo.errors import Rejected
from exo.models.gguf.metadata import Metadata
from exo.models.gguf.splittings import SPLITTINGS, Splitting
from exo.models.gguf.vocabulary import CONTROL, NORMAL, USER_DEFINED, Vocabulary, vocabulary_of
from exo.models.json_file import JsonObject


@dataclass(frozen=True, slots=True)
class ImportedTokenizer:
    """A tokenizer and what stands beside it in a model folder."""

    tokenizer: Tokenizer
    config: JsonObject
    """`tokenizer_config.json`."""
    chat_template: str | None
    bos: int | None
    ends: tuple[int, ...]
    """Ids that end a generation, the file's own first."""


def tokenizer_of(data: Metadata, context: int) -> ImportedTokenizer:
    """The tokenizer that the metadata describe, for a model with `context` tokens.

    Raises Rejected for a kind or pre-tokenizer that is not known, since a guess would answer wrongly without a sign,
    and for a vocabulary that contradicts itself.
    """
    kind = data.text("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise Rejected(
            f"{data.path}: the tokenizer {kind!r} is not read from GGUF: take the model's safetensors instead"
        )
    words = vocabulary_of(data, sentencepiece=kind == "llama")
    if kind == "llama":
        tokenizer, adds_bos = _sentencepiece(data, words), True
    else:
        splitting = _splitting(data)
        tokenizer, adds_bos = _byte_level(data, words, splitting), splitting.starts_with_bos
    _add_whole_tokens(tokenizer, words)
    bos = words.special.get("bos") if data.flag("tokenizer.ggml.add_bos_token", adds_bos) else None
    eos = words.special["eos"] if data.flag("tokenizer.ggml.add_eos_token", False) else None
    _surround(tokenizer, bos, eos, words.tokens)
    template = data.text("tokenizer.chat_template") if "tokenizer.chat_template" in data else None
    return ImportedTokenizer(tokenizer, _config(words, context), template, words.special.get("bos"), words.ends)


def _splitting(data: Metadata) -> Splitting:
    name = data.text("tokenizer.ggml.pre", "default")
    if name not in SPLITTINGS:
        raise Rejected(
            f"{data.path}: the pre-tokenizer {name!r} is not known (known: {', '.join(sorted(SPLITTINGS))}): "
            "take the model's safetensors instead"
        )
    return SPLITTINGS[name]


def _byte_level(data: Metadata, words: Vocabulary, splitting: Splitting) -> Tokenizer:
    merges = [_pair(data, merge, words) for merge in data.texts("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE(vocab=words.ids, merges=merges, ignore_merges=splitting.whole_words_first))
    steps: list[pre_tokenizers.PreTokenizer] = []
    if splitting.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splitting.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if splitting.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(data: Metadata, merge: str, words: Vocabulary) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not {left, right, left + right} <= words.ids.keys():
        raise Rejected(f"{data.path}: the merge {merge!r} is no pair of its tokens: take another file of this model")
    return left, right


def _sentencepiece(data: Metadata, words: Vocabulary) -> Tokenizer:
    """llama.cpp merges the pair whose union has the best score; the same as merges sorted by that score."""
    merges = _merges_from_scores(words, data.numbers("tokenizer.ggml.scores", len(words.tokens)))
    unknown = words.tokens[words.special["unk"]]
    tokenizer = Tokenizer(BPE(vocab=words.ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = data.flag("tokenizer.ggml.add_space_prefix", True)
    # A normalizer, not Metaspace: the space also comes after each special token, as in llama.cpp.
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)] if prefix else steps)
    return tokenizer


def _merges_from_scores(words: Vocabulary, scores: Sequence[int | float]) -> list[tuple[str, str]]:
    """Every way to make a normal token from two, best score first."""
    found: list[tuple[float, int, str, str]] = []
    for token, index in words.ids.items():
        if words.types[index] != NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in words.ids and right in words.ids:
                found.append((-scores[index], index, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]


def _add_whole_tokens(tokenizer: Tokenizer, words: Vocabulary) -> None:
    """Control tokens are special; user-defined ones (`<think>`) are only kept whole."""
    control = [AddedToken(token, normalized=False, special=True) for token in words.of_type(CONTROL)]
    defined = [AddedToken(token, normalized=False, special=False) for token in words.of_type(USER_DEFINED)]
    tokenizer.add_special_tokens(control)  # pyright: ignore[reportUnknownMemberType]  the stub says a bare `list`
    tokenizer.add_tokens(defined)  # pyright: ignore[reportUnknownMemberType]  the stub says a bare `list`


def _surround(tokenizer: Tokenizer, bos: int | None, eos: int | None, tokens: Sequence[str]) -> None:
    """Put the beginning and end tokens around each text, where the file asks for it."""
    before = [] if bos is None else [tokens[bos]]
    after = [] if eos is None else [tokens[eos]]
    if before or after:
        single = [*before, "$A", *after]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single,
            pair=[*single, *(f"{piece.replace('$A', '$B')}:1" for piece in single)],
            special_tokens=[(tokens[index], index) for index in {bos, eos} if index is not None],
        )


def _config(words: Vocabulary, context: int) -> JsonObject:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        **{f"{role}_token": words.tokens[index] for role, index in words.special.items()},
    }
