"""How many threads multiply matrices, as other processes come and go."""

import pytest

from exo.runner.engines.threads import CALM, CALM_MOST, LOOK_PAUSE, ThreadPolicy


def decided(policy: ThreadPolicy, began: float, seconds: float, *, most: int, free: float) -> list[int]:
    """What is decided at every look of a while in which `free` cores are free."""
    return [policy.decide(began + look * LOOK_PAUSE, most, free) for look in range(round(seconds / LOOK_PAUSE))]


def test_free_cores_are_used_after_a_calm_time() -> None:
    threads = decided(ThreadPolicy(), 100.0, CALM + 1, most=4, free=3.9)
    assert threads[0] == 1
    assert threads.index(4) == round(CALM / LOOK_PAUSE)
    assert threads[-1] == 4


def test_a_core_that_others_want_is_left_to_them_at_once() -> None:
    policy = ThreadPolicy(threads=4)
    assert policy.decide(100.0, 4, 3.8) == 4
    assert policy.decide(100.1, 4, 2.6) == 2
    assert policy.decide(100.2, 4, -0.5) == 1


def test_the_share_of_a_runner_is_never_exceeded() -> None:
    policy = ThreadPolicy(threads=4)
    assert policy.decide(100.0, 2, 4.0) == 2
    assert set(decided(policy, 101.0, 2 * CALM_MOST, most=2, free=4.0)) == {2}


def test_a_short_quiet_between_two_loads_is_not_used() -> None:
    policy = ThreadPolicy()
    for cycle in range(20):
        quiet = decided(policy, cycle * 2 * CALM, CALM, most=2, free=2.0)
        loaded = decided(policy, cycle * 2 * CALM + CALM, CALM, most=2, free=1.0)
        assert set(quiet + loaded) == {1}


def test_each_load_soon_after_the_last_doubles_the_wait() -> None:
    policy, now, waits = ThreadPolicy(threads=2), 100.0, list[float]()
    for _ in range(7):
        policy.threads = 2
        assert policy.decide(now, 2, 1.0) == 1
        waits.append(decided(policy, now + 1, CALM_MOST + 1, most=2, free=2.0).index(2) * LOOK_PAUSE)
        now += 1 + waits[-1] + LOOK_PAUSE
    assert waits == [pytest.approx(wait, abs=2 * LOOK_PAUSE) for wait in (4, 8, 16, 32, 64, 64, 64)]


def test_a_long_calm_forgets_the_loads() -> None:
    policy = ThreadPolicy(threads=2)
    for cycle in range(3):
        assert policy.decide(1000.0 * cycle, 2, 1.0) == 1
        threads = decided(policy, 1000.0 * cycle + 1, 4 * CALM_MOST, most=2, free=2.0)
        assert threads.index(2) * LOOK_PAUSE == pytest.approx(2 * CALM, abs=2 * LOOK_PAUSE)
