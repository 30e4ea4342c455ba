"""Compiles that take too long: they end for their client, and neither block others for ever nor go unseen."""

import asyncio
import threading

import pytest

from exo.errors import Rejected
from exo.runner.structured.threads import CompileThreads

SOON = 0.05


async def refusal(threads: CompileThreads) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await threads.run(lambda: threading.Event().wait(60), "guided_json")
    return caught.value


async def test_what_a_compile_returns_or_raises_comes_back() -> None:
    threads = CompileThreads()
    assert await threads.run(lambda: 5, "guided_json") == 5
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 5 // 0, "guided_json")


async def test_one_that_takes_too_long_is_the_callers_fault() -> None:
    overrun = await refusal(CompileThreads(patience=SOON))
    assert (overrun.code, overrun.param) == ("invalid_response_format", "guided_json")
    assert "too complex" in overrun.reason


async def test_one_whose_turn_does_not_come_is_not_and_long_prompts_do_not_wait_for_it() -> None:
    threads = CompileThreads(at_once=2, patience=SOON)
    for _ in range(2):
        await refusal(threads)
    for _ in range(6):
        busy = await refusal(threads)
        assert (busy.code, busy.param) == ("unavailable", "guided_json")
        assert "try again" in busy.reason
    assert await asyncio.to_thread(lambda: "tokens") == "tokens"


async def test_the_time_counts_from_the_start_and_a_place_is_free_again_when_its_compile_ends() -> None:
    threads, ends = CompileThreads(at_once=1, patience=30), threading.Event()
    started = threading.Event()
    first = asyncio.create_task(threads.run(lambda: (started.set(), ends.wait(60)), "guided_json"))
    await asyncio.to_thread(started.wait, 30)
    second = asyncio.create_task(threads.run(lambda: "second", "guided_json"))
    first.cancel()
    await asyncio.wait([first])
    assert not second.done(), "the compile that was given up has not ended"
    ends.set()
    assert await second == "second"
