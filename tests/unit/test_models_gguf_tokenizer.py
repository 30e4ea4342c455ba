"""Tokenizers from GGUF metadata: pieces as llama.cpp cuts them, special tokens, and SentencePiece's own answers."""

import io
from pathlib import Path

import pytest
from test_models_gguf_file import MERGES, TOKENS, TYPES

from exo.models.gguf.metadata import Metadata, Value
from exo.models.gguf.tokenizer import ImportedTokenizer, tokenizer_of

LINES = [
    "the cat sat on the mat 1234 times",
    "Hello, world! It's 12,345.67 naïve café",
    "ünïcödé ∑ 日本語 🙂 emoji",
    "the   spaces\n\nlines\t",
]


def byte_level(pre: str, **replaced: Value) -> ImportedTokenizer:
    values: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": TOKENS.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": TOKENS.index("<|im_end|>"),
    }
    return tokenizer_of(Metadata(Path("file.gguf"), {**values, **replaced}), 512)


def pieces(pre: str, text: str) -> list[str]:
    cut = byte_level(pre).tokenizer.pre_tokenizer
    assert cut is not None
    return [piece for piece, _ in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["It", "'s", "Ġ12345", "Ġcats", "!"]),
        ("default", ["It", "'s", "Ġ12345", "Ġcats", "!"]),
        ("smollm", ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġcats", "!"]),
        ("llama-bpe", ["It", "'s", "Ġ", "123", "45", "Ġcats", "!"]),
        ("qwen2", ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġcats", "!"]),
        ("tekken", ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġcats", "!"]),
    ],
)
def test_text_is_cut_as_the_pre_tokenizer_says(pre: str, expected: list[str]) -> None:
    assert pieces(pre, "It's 12345 cats!") == expected


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
@pytest.mark.parametrize("text", LINES)
def test_byte_level_text_survives_the_way_there_and_back(pre: str, text: str) -> None:
    tokenizer = byte_level(pre).tokenizer
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_stay_whole_and_keep_their_ids() -> None:
    imported = byte_level("smollm")
    assert imported.tokenizer.encode("<|im_start|>the<think>").tokens == ["<|im_start|>", "the", "<think>"]
    ids = imported.tokenizer.encode("<|im_end|>the<think>").ids
    assert ids == [TOKENS.index("<|im_end|>"), TOKENS.index("the"), TOKENS.index("<think>")]
    assert imported.tokenizer.decode(ids) == "the<think>"
    assert imported.ends == (TOKENS.index("<|im_end|>"),)


def test_llama_3_begins_with_its_beginning_token_unless_the_file_says_no() -> None:
    assert byte_level("llama-bpe").tokenizer.encode("the").tokens == ["<|im_start|>", "the"]
    silent = byte_level("llama-bpe", **{"tokenizer.ggml.add_bos_token": False})
    assert silent.tokenizer.encode("the").tokens == ["the"]
    both = byte_level("smollm", **{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True})
    assert both.tokenizer.encode("the").tokens == ["<|im_start|>", "the", "<|im_end|>"]


def test_a_word_that_is_a_token_stays_whole_for_llama_3_without_its_merges() -> None:
    assert byte_level("llama-bpe", **{"tokenizer.ggml.merges": []}).tokenizer.encode("the").tokens[1:] == ["the"]
    assert byte_level("gpt-2", **{"tokenizer.ggml.merges": []}).tokenizer.encode("the").tokens == ["t", "h", "e"]


def test_sentencepiece_vocabularies_give_sentencepieces_own_ids() -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 4), model_writer=model, vocab_size=340, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=3,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = processor.get_piece_size()
    kinds = [
        2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1
        for i in range(count)
    ]
    values: dict[str, Value] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in range(count)],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in range(count)],
        "tokenizer.ggml.token_type": kinds,
    }
    tokenizer = tokenizer_of(Metadata(Path("file.gguf"), values), 512).tokenizer
    for text in [*LINES, "unseen words, 99 ß", " leading", "the", "x"]:
        ids = tokenizer.encode(text).ids
        assert ids == [processor.bos_id(), *processor.encode(text)]
        assert tokenizer.decode(ids) == text
