"""How much memory vLLM's keys and values get, and when."""

import pytest

from exo.domain.limits import SLOTS
from exo.errors import Fatal
from exo.runner.engines.vllm.cache import policy
from exo.runner.engines.vllm.cache.policy import AHEAD, FEWEST, HEADROOM, PREFIXES_KEPT

GIB = 1 << 30
MIB = 1 << 20


def test_the_limit_is_what_all_slots_could_use() -> None:
    assert policy.limit(8192, 500 * GIB, 0, MIB) == SLOTS * 256 + 1


def test_the_limit_is_most_of_what_the_weights_leave() -> None:
    assert policy.limit(8192, 11 * GIB, GIB, 10 * MIB) == 819


def test_a_model_that_leaves_no_memory_is_not_loaded() -> None:
    with pytest.raises(Fatal, match=f"{GIB} bytes are free, and the weights take {GIB - MIB}"):
        policy.limit(8192, GIB, GIB - MIB, MIB)


def test_what_cannot_grow_takes_less() -> None:
    growing = policy.limit(8192, 11 * GIB, GIB, 10 * MIB)
    assert policy.fixed(8192, 11 * GIB, GIB, 10 * MIB) == pytest.approx(growing / 2, abs=1)
    assert policy.fixed(8192, 500 * GIB, GIB, MIB) == 4 * 256 + 1


def test_it_starts_at_a_twentieth_of_what_is_free() -> None:
    assert policy.start(10_000, 20 * GIB, MIB) == 1024
    assert policy.start(100, 20 * GIB, MIB) == 100
    assert policy.start(10_000, GIB, 10 * MIB) == FEWEST


def test_it_doubles_while_it_is_small() -> None:
    assert policy.growth(100, 1, 10_000, 20 * GIB, MIB) == 100
    assert policy.growth(FEWEST // 2, 1, 10_000, 20 * GIB, MIB) == FEWEST


def test_a_large_one_takes_a_step_or_what_is_missing() -> None:
    assert policy.growth(5000, 1, 10_000, 20 * GIB, MIB) == AHEAD // MIB
    assert policy.growth(5000, 900, 10_000, 20 * GIB, MIB) == 900


def test_it_never_grows_over_the_limit() -> None:
    assert policy.growth(90, 50, 100, 20 * GIB, MIB) == 10
    assert policy.growth(100, 50, 100, 20 * GIB, MIB) == 0


@pytest.mark.parametrize(
    ("free", "blocks"),
    [
        (10 * GIB, 1000),
        (1000 * MIB, 488),
        (HEADROOM + FEWEST * MIB, FEWEST),
        (HEADROOM + MIB, 0),
        (HEADROOM, 0),
        (0, 0),
    ],
)
def test_it_leaves_memory_to_others_and_takes_no_crumbs(free: int, blocks: int) -> None:
    assert policy.growth(1000, 1000, 10_000, free, MIB) == blocks


def test_a_fifth_of_what_is_free_stays_so() -> None:
    assert policy.growth(10_000, 10_000, 100_000, 5000 * MIB, MIB) == 4000


def test_what_is_used_stays_until_it_is_old() -> None:
    assert policy.kept(30, held=1, used=80, quiet=PREFIXES_KEPT - 1, free=GIB) == 80
    assert policy.kept(30, held=1, used=80, quiet=PREFIXES_KEPT, free=GIB) == 30
    assert policy.kept(30, held=1, used=20, quiet=0, free=GIB) == 30


def test_what_a_request_holds_stays_whatever_happens() -> None:
    assert policy.kept(30, held=50, used=80, quiet=2 * PREFIXES_KEPT, free=0) == 50


def test_where_memory_is_scarce_next_to_nothing_stays() -> None:
    assert policy.kept(30, held=1, used=80, quiet=0, free=HEADROOM - 1) == FEWEST
