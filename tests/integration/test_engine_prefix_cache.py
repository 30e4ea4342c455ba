"""What the prefix cache finds, keeps and throws away."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import needs_mlx

pytestmark = needs_mlx

TOKENS = st.lists(st.integers(0, 3), max_size=30)


def kept(length: int, windowed: bool = False) -> Any:
    """A state of one layer, whose value at each position is the position."""
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache, RotatingKVCache

    from exo.runner.engines.mlx.kept import Kept

    layer = RotatingKVCache(max_size=8) if windowed else KVCache()
    values = mx.arange(length, dtype=mx.float32)[None, None, :, None]
    layer.update_and_fetch(values, values)
    return Kept(length, [layer])


def cache_of(*sequences: list[int]) -> Any:
    from exo.runner.engines.mlx.prefix_cache import PrefixCache

    cache = PrefixCache()
    for tokens in sequences:
        put(cache, tokens, kept(len(tokens)))
    return cache


def put(cache: Any, tokens: list[int], state: Any) -> None:
    from exo.runner.engines.mlx.prefix_cache import as_tokens

    cache.put(as_tokens(tokens), state)


def found(cache: Any, tokens: list[int], most: int = 1000) -> tuple[int, int]:
    from exo.runner.engines.mlx.prefix_cache import as_tokens

    result = cache.find(as_tokens(tokens), most)
    return result.length, result.shared


@given(TOKENS, TOKENS)
def test_the_common_length_is_that_of_the_longest_common_beginning(one: list[int], other: list[int]) -> None:
    from exo.runner.engines.mlx.prefix_cache import as_tokens, common_length

    length = common_length(as_tokens(one), as_tokens(other))
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length in (len(one), len(other))


@given(st.lists(TOKENS.filter(bool), max_size=6), TOKENS)
def test_the_longest_beginning_of_any_entry_is_found(sequences: list[list[int]], wanted: list[int]) -> None:
    longest = max(
        (sum(1 for end in range(1, len(wanted) + 1) if tokens[:end] == wanted[:end]) for tokens in sequences), default=0
    )
    assert found(cache_of(*sequences), wanted) == (longest, longest)


def test_a_sequence_that_goes_on_takes_the_place_of_its_beginning() -> None:
    cache = cache_of([1, 2, 3], [1, 2, 3, 4, 5], [1, 2])
    assert [entry.tokens.tolist() for entry in cache.entries] == [[1, 2, 3, 4, 5]]
    assert found(cache, [1, 2, 3, 4, 5], most=4) == (4, 4)


def test_the_least_lately_used_goes_first() -> None:
    from exo.runner.engines.mlx.prefix_cache import as_tokens

    cache = cache_of([1, 1], [2, 2], [3, 3])
    cache.touch(cache.find(as_tokens([1, 1, 5]), 2).entry)
    cache.evict(2)
    assert [entry.tokens.tolist() for entry in cache.entries] == [[1, 1]]


def test_so_many_entries_go_that_the_rest_fits() -> None:
    cache = cache_of([1, 1], [2, 2], [3, 3])
    one = cache.nbytes // 3
    assert [cache.entries_over(limit) for limit in (3 * one, 3 * one - 1, 2 * one, one, 0)] == [0, 1, 1, 2, 3]


@given(st.lists(st.tuples(TOKENS.filter(bool), st.booleans(), st.integers(0, 1))))
def test_the_bytes_are_the_sum_over_the_entries_whatever_was_put_and_thrown_away(
    puts: list[tuple[list[int], bool, int]],
) -> None:
    """A windowed state takes a copy of the shorter one over whose place it takes."""
    cache = cache_of()
    for tokens, windowed, thrown_away in puts:
        put(cache, tokens, kept(len(tokens), windowed))
        cache.evict(thrown_away)
        assert cache.nbytes == sum(entry.kept.nbytes for entry in cache.entries)
        assert [cache.entries_over(limit) for limit in (cache.nbytes, -1)] == [0, len(cache.entries)]


def test_a_window_that_was_left_is_had_at_snapshots_only() -> None:
    from exo.runner.engines.mlx.kept import snapshot

    state = kept(20, windowed=True)
    assert [state.nearest(wanted) for wanted in (5, 19, 20, 30)] == [0, 0, 20, 20]
    state.snapshots[12] = snapshot(kept(12, windowed=True).layers)
    assert [state.nearest(wanted) for wanted in (11, 12, 19, 20)] == [0, 12, 12, 20]
    assert state.restored(12)[0].offset == 12


def test_what_is_restored_may_be_written_to_without_harm_to_what_is_kept() -> None:
    import mlx.core as mx

    state = kept(10)
    for wanted in (10, 4):
        layer = state.restored(wanted)[0]
        new = mx.full((1, 1, 3, 1), -1.0)
        keys, _ = layer.update_and_fetch(new, new)
        assert keys[0, 0, :, 0].tolist() == [*range(wanted), -1, -1, -1]
    assert state.layers[0].keys_and_values()[0][0, 0, :, 0].tolist() == list(range(10))
