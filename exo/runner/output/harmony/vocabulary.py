"""OpenAI's own reader of Harmony, without a network.

The package looks its vocabulary up on the network, or in the folder that `TIKTOKEN_ENCODINGS_BASE` names. A gpt-oss
model's own tokenizer holds the same vocabulary, so the file is written from that; its digest, which the package checks
too, proves it.
"""

import base64
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import openai_harmony  # pyright: ignore[reportMissingTypeStubs]  it has none

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the file, as its makers publish it."""


NotHarmony = cast("type[Exception]", openai_harmony.HarmonyError)
"""What the package raises."""


class HarmonyParser(Protocol):
    """Follows the tokens of one generation. Raises NotHarmony for a token that may not stand where it does."""

    def process(self, token: int) -> object:
        """Take one more token."""
        ...

    @property
    def current_channel(self) -> str | None:
        """Of the message that is being read."""
        ...

    @property
    def current_recipient(self) -> str | None:
        """Of the message that is being read."""
        ...


OpenParser = Callable[[], HarmonyParser]
"""Makes a parser for the answer to a prompt that ends in `<|start|>assistant`."""


def harmony_parsers(vocabulary: Mapping[str, int]) -> OpenParser | None:
    """Parsers for a model with these tokens, in the spelling of byte-level BPE, without those added to them.

    None where it is another vocabulary than gpt-oss': its Harmony is read as text.
    """
    try:
        encoding = _loaded(vocabulary)
    except (NotHarmony, OSError, ValueError, KeyError) as error:
        logger.warning("this model's Harmony is read as text, since its vocabulary is not gpt-oss': %s", error)
        return None
    return lambda: cast(HarmonyParser, openai_harmony.StreamableParser(encoding, openai_harmony.Role.ASSISTANT))


def _loaded(vocabulary: Mapping[str, int]) -> openai_harmony.HarmonyEncoding:
    written = _written(vocabulary)
    if hashlib.sha256(written).hexdigest() != SHA256:
        raise ValueError("its digest is another")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(written)
        before = os.environ.get(FOLDER_VARIABLE)
        os.environ[FOLDER_VARIABLE] = folder
        try:
            return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
        finally:
            with suppress(KeyError):
                del os.environ[FOLDER_VARIABLE]
            if before is not None:
                os.environ[FOLDER_VARIABLE] = before


def _written(vocabulary: Mapping[str, int]) -> bytes:
    """The vocabulary as tiktoken has it: a token's bytes in base64 and its number, a line each, by number."""
    lines: list[bytes] = []
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        raw = bytes(_BYTES[letter] for letter in token)
        lines.append(b"%s %d\n" % (base64.b64encode(raw), number))
    return b"".join(lines)


def _letters() -> Mapping[str, int]:
    """The bytes that byte-level BPE spells as letters: itself where it can be seen, else one from U+0100 on."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + place): byte for place, byte in enumerate(unseen)}


_BYTES = _letters()
