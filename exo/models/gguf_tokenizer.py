"""The tokenizer in a GGUF file's metadata, as a `tokenizer.json`.

What each `tokenizer.ggml.pre` means is fixed by llama.cpp (`src/llama-vocab.cpp`). transformers has a converter too,
but it knows no `smollm` (digits would stay together), and importing it costs seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from exo.errors import Rejected
from exo.models.gguf_metadata import Metadata
from exo.models.json_file import JsonObject

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""`tokenizer.ggml.token_type`. 2 is unknown, 6 a byte."""

END_TEXTS = frozenset({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"})
"""Control tokens that end a turn whatever the metadata says (llama.cpp's end-of-generation list)."""

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a byte-level vocabulary's text is cut before merging."""

    pattern: str | None = None
    """None: GPT-2's own pattern."""
    single_digits: bool = False
    whole_words_first: bool = False
    """A piece that is a token stays whole, whatever the merges say."""
    composed: bool = False
    """Unicode NFC first."""
    starts_with_bos: bool = False
    """Unless the file says otherwise."""


GPT2 = Splitting()
SMOLLM = Splitting(single_digits=True)
LLAMA3 = Splitting(LLAMA3_SPLIT, whole_words_first=True, starts_with_bos=True)
QWEN2 = Splitting(QWEN2_SPLIT, composed=True)
TEKKEN = Splitting(TEKKEN_SPLIT, whole_words_first=True, starts_with_bos=True)
SPLITTINGS = {
    "gpt-2": GPT2,
    "default": GPT2,
    "smollm": SMOLLM,
    "starcoder": SMOLLM,
    "refact": SMOLLM,
    "codeshell": SMOLLM,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "llama-bpe": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": TEKKEN,
}
"""By `tokenizer.ggml.pre`."""


@dataclass(frozen=True, slots=True)
class ImportedTokenizer:
    """A tokenizer and what stands beside it in a model folder."""

    tokenizer: Tokenizer
    config: JsonObject
    """`tokenizer_config.json`."""
    chat_template: str | None
    bos: int | None
    end_tokens: tuple[int, ...]
    """Ids that end a generation, the file's own first."""


def tokenizer_of(data: Metadata, context: int) -> ImportedTokenizer:
    """The tokenizer that the metadata describe, for a model with `context` tokens.

    Raises Rejected for a kind or pre-tokenizer that is not known, since a guess would answer wrongly without a sign,
    and for a vocabulary that contradicts itself.
    """
    kind = data.text("tokenizer.ggml.model")
    build = {"gpt2": _byte_level, "llama": _sentencepiece}.get(kind)
    if build is None:
        raise Rejected(
            f"{data.path}: the tokenizer {kind!r} is not read from GGUF: take the model's safetensors instead"
        )
    tokens = data.texts("tokenizer.ggml.tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if not tokens or len(vocabulary) != len(tokens):
        raise Rejected(f"{data.path}: its vocabulary is empty or names a token twice: take another file of this model")
    types = (
        data.numbers("tokenizer.ggml.token_type", len(tokens))
        if "tokenizer.ggml.token_type" in data
        else [1] * len(tokens)
    )
    special = _special_tokens(data, tokens, sentencepiece=kind == "llama")
    tokenizer, adds_bos = build(data, vocabulary, types, special)
    _add_whole_tokens(tokenizer, tokens, types)
    adds_bos = data.flag("tokenizer.ggml.add_bos_token", adds_bos)
    _surround(tokenizer, special["bos"] if adds_bos else None, special["eos"] if _adds_eos(data) else None, tokens)
    template = data.text("tokenizer.chat_template") if "tokenizer.chat_template" in data else None
    return ImportedTokenizer(
        tokenizer, _config(special, tokens, context), template, special["bos"], _ends(data, tokens, types, special)
    )


Special = dict[str, int | None]
Build = Callable[[Metadata, dict[str, int], Sequence[int | float], Special], tuple[Tokenizer, bool]]


def _adds_eos(data: Metadata) -> bool:
    return data.flag("tokenizer.ggml.add_eos_token", False)


def _special_tokens(data: Metadata, tokens: Sequence[str], *, sentencepiece: bool) -> Special:
    """Ids of bos, eos, unk and pad; None where there is none. Defaults are SentencePiece's own."""
    defaults = {"bos": 1, "eos": 2, "unk": 0} if sentencepiece else {}
    keys = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
    special: Special = {}
    for role, key in keys.items():
        full = f"tokenizer.ggml.{key}"
        known = full in data or role in defaults
        special[role] = data.whole(full, defaults.get(role), least=0, most=len(tokens) - 1) if known else None
    if special["eos"] is None:
        raise Rejected(
            f"{data.path} does not say which token ends a text ('tokenizer.ggml.eos_token_id'): take another file"
        )
    return special


def _byte_level(
    data: Metadata, vocabulary: dict[str, int], _types: Sequence[int | float], _special: Special
) -> tuple[Tokenizer, bool]:
    name = data.text("tokenizer.ggml.pre", "default")
    splitting = SPLITTINGS.get(name)
    if splitting is None:
        raise Rejected(
            f"{data.path}: the pre-tokenizer {name!r} is not known (known: {', '.join(sorted(SPLITTINGS))}): "
            "take the model's safetensors instead"
        )
    merges = [_pair(data, merge) for merge in data.texts("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(_bpe(data, vocabulary, merges, ignore_merges=splitting.whole_words_first))
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
    return tokenizer, splitting.starts_with_bos


def _pair(data: Metadata, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise Rejected(f"{data.path}: the merge {merge!r} is no pair of tokens: take another file of this model")
    return left, right


def _bpe(
    data: Metadata,
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    unk: str | None = None,
) -> BPE:
    unknown = [left + right for left, right in merges if not {left, right, left + right} <= vocabulary.keys()]
    if unknown:
        raise Rejected(
            f"{data.path}: the merge to {unknown[0]!r} is not in its vocabulary: take another file of this model"
        )
    if unk is None:
        return BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore_merges)
    return BPE(vocab=vocabulary, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True)


def _sentencepiece(
    data: Metadata, vocabulary: dict[str, int], types: Sequence[int | float], special: Special
) -> tuple[Tokenizer, bool]:
    """llama.cpp merges the pair whose union has the best score; the same as merges sorted by that score."""
    scores = data.numbers("tokenizer.ggml.scores", len(vocabulary))
    merges = _merges_from_scores(vocabulary, types, scores)
    unk = next((token for token, index in vocabulary.items() if index == special["unk"]), None)
    tokenizer = Tokenizer(_bpe(data, vocabulary, merges, unk=unk or "<unk>"))
    prefix = data.flag("tokenizer.ggml.add_space_prefix", True)
    # A normalizer, not Metaspace: the space also comes after each special token, as in llama.cpp.
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)] if prefix else steps)
    return tokenizer, True


def _merges_from_scores(
    vocabulary: dict[str, int], types: Sequence[int | float], scores: Sequence[int | float]
) -> list[tuple[str, str]]:
    """Every way to make a normal token from two, best score first."""
    found: list[tuple[float, int, str, str]] = []
    for token, index in vocabulary.items():
        if types[index] != NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[index], index, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]


def _add_whole_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int | float]) -> None:
    """Control tokens are special; user-defined ones (`<think>`) are only kept whole."""
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL and token]
    defined = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED and token]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in defined])


def _surround(tokenizer: Tokenizer, bos: int | None, eos: int | None, tokens: Sequence[str]) -> None:
    """Put the beginning and end tokens around each text, where the file asks for it."""
    before = [] if bos is None else [tokens[bos]]
    after = [] if eos is None else [tokens[eos]]
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[
                *before,
                "$A",
                *after,
                *(f"{token}:1" for token in before),
                "$B:1",
                *(f"{token}:1" for token in after),
            ],
            special_tokens=[(tokens[index], index) for index in {bos, eos} if index is not None],
        )


def _config(special: Special, tokens: Sequence[str], context: int) -> JsonObject:
    named = {f"{role}_token": tokens[index] for role, index in special.items() if index is not None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        **named,
    }


def _ends(data: Metadata, tokens: Sequence[str], types: Sequence[int | float], special: Special) -> tuple[int, ...]:
    ends = [special["eos"]]
    for key in ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"):
        if key in data:
            ends.append(data.whole(key, least=0, most=len(tokens) - 1))
    ends += [index for index, token in enumerate(tokens) if types[index] == CONTROL and token in END_TEXTS]
    return tuple(dict.fromkeys(end for end in ends if end is not None))
