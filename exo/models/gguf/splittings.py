"""What `tokenizer.ggml.pre` means, as llama.cpp fixes it (`src/llama-vocab.cpp`): how text is cut before merging."""

from dataclasses import dataclass

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
