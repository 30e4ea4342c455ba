"""How a process of exo is started, and how it ends: when it is told to, or when what it does cannot go on."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine

import uvloop

from exo.errors import ExoError, Fatal
from exo.honcho import honcho_watch
from exo.log_setup import LogFormat, setup_logging

logger = logging.getLogger(__name__)

_ENDING = (signal.SIGINT, signal.SIGTERM)
TOLD_AGAIN = 4.0
"""Seconds after which a process that was told to end and did not is told again. Its last words take two."""
LOOK_PAUSE = 1.0
"""Seconds between two looks at whether honcho still runs."""


def module_command(module: str) -> list[str]:
    """What starts a module as a process. `-P`: files in the folder that it starts in are not taken for Python's own."""
    return [sys.executable, "-P", "-m", module]


def _never() -> bool:
    return False


async def until_stopped(work: Coroutine[object, object, None], is_left: Callable[[], bool] = _never) -> None:
    """Do `work` until it ends; on SIGINT or SIGTERM, or once `is_left` says so, cancel it and wait for its end. Raises
    what it raises."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def tell() -> None:
        if not task.done():
            task.cancel()
            loop.call_later(TOLD_AGAIN, tell)

    def stop() -> None:
        for number in _ENDING:  # a second one must not interrupt the last words
            loop.add_signal_handler(number, logger.info, "ending already")
        tell()

    def look() -> None:
        if is_left():
            logger.info("honcho, which started this process, is gone: ending")
            stop()
        else:
            loop.call_later(LOOK_PAUSE, look)

    for number in _ENDING:
        loop.add_signal_handler(number, stop)
    look()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def give_way() -> None:
    """Raise CancelledError where the current task was told to end. For endless loops that wait for NATS: its client
    waits by `asyncio.wait_for`, which before Python 3.12 drops a cancellation that comes together with the answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end. Raises what it raises; cancelled itself meanwhile, it says so."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def run_loop(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine on uvloop: exo's processes mostly pass messages on, and it spares a sixth of their time."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def run_process(work: Coroutine[object, object, None], log_level: str, log_format: LogFormat) -> None:
    """Run a process' main coroutine until it ends, is told to, or is left by the honcho that started it. A Fatal is one
    line and its exit code."""
    setup_logging(log_level, log_format)
    try:
        run_loop(until_stopped(work, honcho_watch()))
    except ExoError as error:
        logger.error("%s", error)
        sys.exit(error.exit_code if isinstance(error, Fatal) else 1)
    except KeyboardInterrupt:
        sys.exit(0)
