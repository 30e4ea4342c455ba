"""GGUF files made here with the reference writer: every tensor type comes through, every broken file is refused."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

from exo.errors import Rejected
from exo.models.gguf.file import READABLE, open_gguf

LAYERS, HIDDEN, HEADS, KV_HEADS, INNER = 2, 256, 8, 4, 256
HEAD_DIM = HIDDEN // HEADS

Edit = Callable[[gguf.GGUFWriter], None]


TOKENS = [*sorted(ByteLevel.alphabet()), "th", "the", "12", "Ġthe", "<|im_start|>", "<|im_end|>", "<think>"]
MERGES = ["t h", "th e", "1 2", "Ġ the"]
TYPES = [1] * (len(TOKENS) - 3) + [3, 3, 4]


def tensor_shapes(*, tied: bool = True) -> dict[str, tuple[int, ...]]:
    keys = KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        shapes["output.weight"] = (len(TOKENS), HIDDEN)
    for index in range(LAYERS):
        blk = f"blk.{index}"
        shapes |= {
            f"{blk}.attn_norm.weight": (HIDDEN,),
            f"{blk}.attn_q.weight": (HIDDEN, HIDDEN),
            f"{blk}.attn_k.weight": (keys, HIDDEN),
            f"{blk}.attn_v.weight": (keys, HIDDEN),
            f"{blk}.attn_output.weight": (HIDDEN, HIDDEN),
            f"{blk}.ffn_norm.weight": (HIDDEN,),
            f"{blk}.ffn_gate.weight": (INNER, HIDDEN),
            f"{blk}.ffn_up.weight": (INNER, HIDDEN),
            f"{blk}.ffn_down.weight": (HIDDEN, INNER),
        }
    return shapes


def random_tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    generator = np.random.default_rng(7)
    return {name: generator.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def write_header(writer: gguf.GGUFWriter, **replaced: object) -> None:
    """The metadata of a tiny llama with a byte-level tokenizer; `replaced` changes single keys, None leaves one out."""
    whole = {
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.bos_token_id": TOKENS.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": TOKENS.index("<|im_end|>"),
    }
    texts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.chat_template": "{{ messages }}",
    }
    for key, value in {**whole, **texts, **replaced}.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            assert isinstance(value, list)
            writer.add_array(key, value)
    for key, value in {"llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 100000.0}.items():
        if key not in replaced:
            writer.add_float32(key, value)
    for key, items in {
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.merges": MERGES,
    }.items():
        if key not in replaced:
            writer.add_array(key, items)


def write_gguf(
    path: Path,
    tensors: Mapping[str, NDArray[np.float32]],
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str = "llama",
    **replaced: object,
) -> Path:
    """A GGUF file; vectors stay F32, as llama.cpp keeps them."""
    writer = gguf.GGUFWriter(path, architecture)
    write_header(writer, **replaced)
    for name, tensor in tensors.items():
        if tensor.ndim == 1 or kind == GGMLQuantizationType.F32:
            writer.add_tensor(name, tensor)
        elif kind == GGMLQuantizationType.F16:
            writer.add_tensor(name, tensor.astype(np.float16))
        else:
            writer.add_tensor(name, packed(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def packed(tensor: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Quantized rows. The K-quants, which the package cannot make, as zeros: a valid block of the number 0."""
    if kind.name.endswith("_K"):
        block, size = GGML_QUANT_SIZES[kind]
        return np.zeros((tensor.shape[0], tensor.shape[1] // block * size), np.uint8)
    return quantize(tensor, kind)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", random_tensors(tensor_shapes()))


@pytest.mark.parametrize("kind", sorted(READABLE), ids=lambda kind: kind.name)
def test_every_readable_type_comes_back_as_the_reference_reader_has_it(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    path = write_gguf(tmp_path / "file.gguf", random_tensors(tensor_shapes()), kind)
    ours = open_gguf(path)
    reference = gguf.GGUFReader(path)
    assert set(ours.tensors) == {tensor.name for tensor in reference.tensors}
    for tensor in reference.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert np.array_equal(
            dequantize(ours.rows(found), found.type).reshape(-1),
            dequantize(tensor.data, tensor.tensor_type).reshape(-1),
        )
    for key, field in reference.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata.values[key] == field.contents()


def test_an_unknown_tensor_type_is_refused_by_name(tmp_path: Path) -> None:
    shapes = tensor_shapes()
    path = tmp_path / "file.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    write_header(writer)
    kind = GGMLQuantizationType.IQ4_NL
    block, size = GGML_QUANT_SIZES[kind]
    raw = np.zeros((HIDDEN, HIDDEN // block * size), np.uint8)
    for name in shapes:
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(Rejected, match=r"IQ4_NL, which is not supported: take a file in one of BF16, F16"):
        open_gguf(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"none\.gguf cannot be read"):
        open_gguf(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    "content", [b"", b"GG", b"<!DOCTYPE html>" * 10, b"version https://git-lfs.github.com/spec/v1"]
)
def test_another_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.gguf").write_bytes(content)
    with pytest.raises(Rejected, match="no usable GGUF file"):
        open_gguf(tmp_path / "file.gguf")


def test_another_version_is_refused(tmp_path: Path, tiny: Path) -> None:
    content = bytearray(tiny.read_bytes())
    content[4:8] = struct.pack(">I", 3)
    tiny.write_bytes(content)
    with pytest.raises(Rejected, match="little-endian versions 2 and 3"):
        open_gguf(tiny)


def test_tensor_data_that_ends_too_early_is_refused(tiny: Path) -> None:
    tiny.write_bytes(tiny.read_bytes()[:-100])
    with pytest.raises(
        Rejected, match=r"is cut: the tensor .* ends at byte [\d,]+, the file at [\d,]+: fetch it again"
    ):
        open_gguf(tiny)


def test_a_cut_at_any_byte_of_the_header_is_refused(tiny: Path) -> None:
    content = tiny.read_bytes()
    header = content.index(b"token_embd.weight")
    for end in [*range(0, 200), *range(200, header + 100, 97)]:
        tiny.write_bytes(content[:end])
        with pytest.raises(Rejected):
            open_gguf(tiny)


def absurd(pieces: Sequence[bytes]) -> bytes:
    return b"GGUF" + struct.pack("<I", 3) + b"".join(pieces)


KEY = struct.pack("<Q", 3) + b"key"


@pytest.mark.parametrize(
    "content",
    [
        absurd([struct.pack("<QQ", 2**60, 1)]),
        absurd([struct.pack("<QQ", 0, 2**60)]),
        absurd([struct.pack("<QQ", 0, 1), struct.pack("<Q", 2**62)]),
        absurd([struct.pack("<QQ", 0, 1), KEY, struct.pack("<IIQ", 9, 0, 2**60), b"\0" * 64]),
        absurd([struct.pack("<QQ", 0, 1), KEY, struct.pack("<IIQ", 9, 8, 2**24), b"\0" * 64]),
        absurd([struct.pack("<QQ", 0, 1), KEY, struct.pack("<II", 99, 0)]),
        absurd([struct.pack("<QQ", 0, 1), KEY, struct.pack("<IIQ", 9, 9, 1)]),
        absurd([struct.pack("<QQ", 0, 2), KEY, struct.pack("<II", 4, 0), KEY, struct.pack("<II", 4, 0)]),
        absurd([struct.pack("<QQ", 0, 1), struct.pack("<Q", 3), b"\xff\xfe\xfd", struct.pack("<II", 4, 0)]),
        absurd([struct.pack("<QQ", 1, 0), KEY, struct.pack("<I", 2**31)]),
        absurd([struct.pack("<QQ", 1, 0), KEY, struct.pack("<IQQIQ", 2, 2**63, 2**63, 0, 0)]),
        absurd([struct.pack("<QQ", 1, 0), KEY, struct.pack("<IQIQ", 1, 0, 0, 0)]),
    ],
)
def test_absurd_counts_and_values_are_refused_at_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.gguf").write_bytes(content)
    with pytest.raises(Rejected):
        open_gguf(tmp_path / "file.gguf")
