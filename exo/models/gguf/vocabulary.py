"""The vocabulary in a GGUF file's metadata: tokens, their types, and the special ones among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exo.errors import Rejected
from exo.models.gguf.metadata import Metadata

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""`tokenizer.ggml.token_type`. 2 is unknown, 5 unused, 6 a byte."""

END_TEXTS = frozenset({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"})
"""Control tokens that end a turn whatever the metadata says (llama.cpp's end-of-generation list)."""

ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
SENTENCEPIECE_DEFAULTS = {"bos": 1, "eos": 2, "unk": 0}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All tokens. `special`: bos, eos, unk and pad, where there are such, to their ids."""

    ids: dict[str, int]
    tokens: Sequence[str]
    types: Sequence[int | float]
    special: Mapping[str, int]
    ends: tuple[int, ...]
    """Ids that end a generation, the file's own first."""

    def of_type(self, kind: int) -> list[str]:
        """The tokens of one type, in the order of their ids; an empty text is none."""
        return [token for token, found in zip(self.tokens, self.types, strict=True) if found == kind and token]


def vocabulary_of(data: Metadata, *, sentencepiece: bool) -> Vocabulary:
    """The vocabulary. Raises Rejected when it is empty, names a token twice, or lacks an end token."""
    tokens = data.texts("tokenizer.ggml.tokens")
    ids = {token: index for index, token in enumerate(tokens)}
    if not tokens or len(ids) != len(tokens):
        raise Rejected(f"{data.path}: its vocabulary is empty or names a token twice: take another file of this model")
    key = "tokenizer.ggml.token_type"
    types = data.numbers(key, len(tokens)) if key in data else [NORMAL] * len(tokens)
    defaults = SENTENCEPIECE_DEFAULTS if sentencepiece else {}
    special = {
        role: data.whole(f"tokenizer.ggml.{name}", defaults.get(role), least=0, most=len(tokens) - 1)
        for role, name in ROLES.items()
        if role == "eos" or role in defaults or f"tokenizer.ggml.{name}" in data
    }
    controls = {token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL}
    ends = [special["eos"]]
    for name in ("eot_token_id", "eom_token_id"):
        ends.append(data.whole(f"tokenizer.ggml.{name}", special["eos"], least=0, most=len(tokens) - 1))  # noqa: PERF401
    ends += sorted(ids[token] for token in END_TEXTS & controls)
    return Vocabulary(ids, tokens, types, special, tuple(dict.fromkeys(ends)))
