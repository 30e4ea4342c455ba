"""Layouts of vLLM's blocks are found whatever they are, and keys and values come back bit by bit."""

import pytest

from tests.conftest import needs_vllm

torch = pytest.importorskip("torch")

from exo.runner.engines.vllm.kv.layout import found_layout, read, write  # noqa: E402  (torch is not everywhere)

pytestmark = needs_vllm

BLOCKS, HEADS, TOKENS, SIZE = 5, 3, 8, 4
Tensor = torch.Tensor


def beside(cache: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """As the GPU backends do: a token's keys, then its values."""
    cache[slots // TOKENS, :, slots % TOKENS] = torch.cat([keys, values], dim=-1)


def transposed(cache: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """As on a CPU: a head's keys of a block by their numbers, then its values by their tokens."""
    halves = cache.view(BLOCKS, HEADS, 2, -1)
    halves[:, :, 0].view(BLOCKS, HEADS, SIZE, TOKENS)[slots // TOKENS, :, :, slots % TOKENS] = keys
    halves[:, :, 1].view(BLOCKS, HEADS, TOKENS, SIZE)[slots // TOKENS, :, slots % TOKENS] = values


def tiled(cache: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """As for matrix instructions: keys of two neighbouring numbers side by side for all tokens of a block."""
    halves = cache.view(BLOCKS, HEADS, 2, -1)
    tiles = halves[:, :, 0].view(BLOCKS, HEADS, SIZE // 2, TOKENS, 2)
    tiles[slots // TOKENS, :, :, slots % TOKENS] = keys.view(-1, HEADS, SIZE // 2, 2)
    halves[:, :, 1].view(BLOCKS, HEADS, TOKENS, SIZE)[slots // TOKENS, :, slots % TOKENS] = values


def by_head(dtype: torch.dtype) -> Tensor:
    return torch.zeros(BLOCKS, HEADS, TOKENS, 2 * SIZE, dtype=dtype)


def by_token(dtype: torch.dtype) -> Tensor:
    return torch.zeros(BLOCKS, TOKENS, HEADS, 2 * SIZE, dtype=dtype).transpose(1, 2)


def of_several_layers(dtype: torch.dtype) -> Tensor:
    """The second of three layers whose pages of one block lie together."""
    return torch.zeros(BLOCKS, 3, HEADS, TOKENS, 2 * SIZE, dtype=dtype)[:, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "way"),
    [(by_head, beside), (by_token, beside), (of_several_layers, beside), (by_head, transposed), (by_head, tiled)],
)
def test_what_the_backend_writes_is_read_and_what_is_written_is_what_it_would_write(make, way, dtype) -> None:
    cache = make(dtype)
    layout = found_layout(cache, HEADS, SIZE, lambda keys, values, slots: way(cache, keys, values, slots))
    assert layout is not None
    slots = torch.tensor([9, 8, 30, 17, 39])
    state = torch.randn(2, len(slots), HEADS, SIZE).to(dtype)
    way(cache, state[0], state[1], slots)
    assert torch.equal(read(cache, layout.index(slots)), state)
    ours, theirs = (make(dtype).fill_(7) for _ in range(2))
    write(ours, layout.index(slots), state)
    way(theirs, state[0], state[1], slots)
    assert torch.equal(ours, theirs)


def test_a_block_that_holds_other_numbers_than_it_was_given_has_no_layout() -> None:
    def halved(cache: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        beside(cache, keys // 2, values // 2, slots)

    cache = by_head(torch.uint8)
    assert found_layout(cache, HEADS, SIZE, lambda *given: halved(cache, *given)) is None
    padded = torch.zeros(BLOCKS, HEADS, TOKENS, 2 * SIZE + 1)
    assert found_layout(padded, HEADS, SIZE, lambda *given: None) is None
