"""The runner's process. Told what to be by one line on standard input, and what changes by later ones; ends when that
closes, as it does when its worker dies."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import cast

import exo
from exo.bus.beats import publish_beat
from exo.bus.client import Bus, connect
from exo.bus.counts import answer_counts
from exo.bus.inbox import send_report
from exo.bus.prefills import answer_prefills
from exo.bus.tasks import last_task
from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.reports import RunnerStatusSeen
from exo.domain.runner_spec import RunnerShare, RunnerSpec
from exo.domain.runner_status import Failed, Joining, Loading, Ready, RunnerStatus, Warming
from exo.domain.sampling import SamplingParams
from exo.errors import ExoError, Fatal, Rejected, Retryable, one_line
from exo.log_setup import setup_logging
from exo.process import run_loop, until_stopped
from exo.runner.engine_thread import EngineThread
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, TokenOutput
from exo.runner.engines.threads import ThreadShare
from exo.runner.loop import RunnerLoop
from exo.runner.peers import SILENT, PeerLost, PeerSilent, PeerWatch, lost_connection, meet, peers, told_peers

logger = logging.getLogger("exo.runner.main")  # this module runs as __main__

BEAT = 1.0
"""Seconds between two signs of life."""
REPORT_PATIENCE = 30.0
"""Seconds that a report of a status is tried."""
PEER_FIRST = 1.0
"""Seconds in which the reason of a lost peer may be told by its own worker."""
WARM_UP_TOKENS = 8
PROGRESS_PAUSE = 2.0
"""Seconds between two lines about how far loading is."""


def main() -> None:
    """Read the spec, run, and leave without waiting for a step that may never end."""
    spec = RunnerSpec.model_validate_json(sys.stdin.readline())
    setup_logging(spec.log_level, spec.log_format)
    threads = ThreadShare(spec.threads)
    threading.Thread(target=_listen_to_worker, args=(threads,), name="lifeline", daemon=True).start()
    code = 0
    try:
        run_loop(until_stopped(run(spec, threads)))
    except ExoError as error:
        logger.error("%s", error)
        code = 1
    sys.stderr.flush()
    os._exit(code)


async def run(spec: RunnerSpec, threads: ThreadShare) -> None:
    """Load, warm up, and generate until cancelled. Raises Fatal, after having reported it, where that cannot be."""
    bus = await connect(spec.nats_url, spec.cluster, f"runner {spec.shard.runner_id}")
    thread = EngineThread(
        make_engine(spec.instance.engine, Path(spec.cache_dir), threads, spec.ray), spec.instance.slots
    )
    thread.start()
    progress = _Progress(spec)
    beating = asyncio.create_task(_beat(bus, spec, thread, progress))
    serve = _serve_alone if len(spec.instance.shards) == 1 else _serve_together
    try:
        await serve(bus, spec, thread, progress)
    except Exception as error:
        cause = await _told_apart(error, spec)
        await _report(bus, spec, failed(cause))
        raise Fatal(f"the runner of {spec.instance.model_id} failed") from error
    finally:
        beating.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await bus.close()


async def _serve_alone(bus: Bus, spec: RunnerSpec, thread: EngineThread, progress: "_Progress") -> None:
    speed = await _load(bus, spec, thread, progress)
    await _generate(bus, spec, thread, (spec.process,), await last_task(bus), speed)


async def _serve_together(bus: Bus, spec: RunnerSpec, thread: EngineThread, progress: "_Progress") -> None:
    """As one of several ranks. Raises Retryable where they do not meet, or one is lost."""
    after = await last_task(bus)
    port = await thread.call(lambda engine: engine.listen(spec.shard.host))
    await _report(bus, spec, Joining(port=port))
    connect_task = await told_peers(bus, spec, after)
    watch = PeerWatch(bus, spec, connect_task.processes)
    await watch.listen()

    async def serve() -> None:
        await meet(thread, peers(spec, connect_task), watch)
        speed = await _load(bus, spec, thread, progress)
        watch.patience = SILENT
        await _generate(bus, spec, thread, connect_task.processes, after, speed)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run())
        tasks.create_task(serve())


async def _load(bus: Bus, spec: RunnerSpec, thread: EngineThread, progress: "_Progress") -> float:
    """Load and warm up; the speed of decoding, tokens per second."""
    await _report(bus, spec, Loading())
    await thread.call(lambda engine: engine.load(spec.shard, Path(spec.folder), progress))
    await thread.call(lambda engine: engine.ranks.agree([0]))  # the slowest rank has loaded too
    await _report(bus, spec, Warming())
    return await thread.call(warm_up)


async def _generate(
    bus: Bus, spec: RunnerSpec, thread: EngineThread, processes: tuple[str, ...], after: int, speed: float
) -> None:
    """Take tasks after the stream's sequence `after`, without end."""
    tokenizer = await thread.call(lambda engine: engine.tokenizer)
    loop = RunnerLoop(bus, spec, processes, thread, tokenizer)
    if spec.shard.rank == 0:
        await answer_counts(bus, spec.instance.instance_id, loop.count)
    if len(processes) == 1:
        await answer_prefills(bus, spec.instance.instance_id, loop.prefill)
    await _report(bus, spec, Ready(tokens_per_second=speed))
    logger.info("%s is ready on this node, %.1f tokens/s in one stream", spec.instance.model_id, speed)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(loop.take_tasks(after))
            tasks.create_task(thread.run(loop.take_outputs))
    finally:
        await loop.close()


def warm_up(engine: Engine) -> float:
    """Run a short prompt; the speed of decoding, tokens per second. Called in the engine's thread."""
    task_id = TaskId("warm-up")
    prompt = _warm_up_prompt(engine)
    try:
        engine.submit(task_id, prompt, SamplingParams(temperature=0, max_tokens=WARM_UP_TOKENS))
    except Rejected:
        engine.embed(task_id, [[0]], EmbeddingParams())  # a model that some engines load for vectors alone
    times: list[float] = []
    while engine.in_flight:
        times += [time.monotonic() for output in engine.step() if isinstance(output, TokenOutput)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    return 1 / max(1e-6, median(pauses)) if pauses else 0.0  # not the mean: the first step may compile


def _warm_up_prompt(engine: Engine) -> list[int]:
    try:
        return engine.tokenizer.encode_chat([{"role": "user", "content": "Hello"}])
    except Rejected:
        return [0]  # a template may refuse this conversation and take others; some models have none


class _Progress:
    """How far loading is: for the next beat, and said in the log, not too often."""

    def __init__(self, spec: RunnerSpec) -> None:
        self._model_id = spec.instance.model_id
        self._said = time.monotonic()
        self.layers = (0, 0)
        """Loaded, of how many."""

    def __call__(self, done: int, total: int) -> None:
        self.layers = (done, total)
        now = time.monotonic()
        if done == total or now - self._said > PROGRESS_PAUSE:
            self._said = now
            logger.info("loading %s: %d of %d layers", self._model_id, done, total)


async def _beat(bus: Bus, spec: RunnerSpec, thread: EngineThread, progress: _Progress) -> None:
    while True:
        loaded, total = progress.layers
        beat = RunnerBeat(
            runner_id=spec.shard.runner_id,
            process=spec.process,
            in_flight=thread.in_flight,
            step_seconds=thread.step_seconds,
            loaded_layers=loaded,
            total_layers=total,
        )
        await publish_beat(bus, spec.shard.node_id, beat)
        await asyncio.sleep(BEAT)


async def _report(bus: Bus, spec: RunnerSpec, status: RunnerStatus) -> None:
    report = RunnerStatusSeen(runner_id=spec.shard.runner_id, process=spec.process, status=status)
    await send_report(bus, spec.shard.runner_id, report, REPORT_PATIENCE)


async def _told_apart(error: Exception, spec: RunnerSpec) -> Exception:
    """What made the runner fail. One whose connection to a peer ended gives way: what ended that peer is the better
    reason, and whoever saw it says so within a moment, which ends this process too."""
    cause = _cause(error)
    if len(spec.instance.shards) > 1 and isinstance(cause, RuntimeError):
        cause = lost_connection(spec, cause)
    if isinstance(cause, Retryable):
        await asyncio.sleep(0 if isinstance(cause, PeerSilent) else PEER_FIRST)
        logger.error("the runner of %s failed: %s", spec.instance.model_id, cause)
    else:
        logger.error("the runner of %s failed", spec.instance.model_id, exc_info=error)
    return cause


def _cause(error: Exception) -> Exception:
    """The error itself; of a group, its first."""
    if isinstance(error, ExceptionGroup):
        return _cause(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return error


def failed(error: Exception) -> Failed:
    """What is told of an error that ended a runner."""
    if isinstance(error, PeerLost):
        return Failed(reason=error.reason, lost=error.lost)
    return Failed(reason=reason_of(error), permanent=isinstance(error, Fatal))


def reason_of(error: Exception) -> str:
    """One line. Of an error that nobody foresaw, with the place in this program that it came through last."""
    if isinstance(error, ExoError):
        return str(error)
    text = one_line(error).removesuffix(":")
    return f"{text} ({_place(error)})"


def _place(error: Exception) -> str:
    """`runner/loop.py:12, take_tasks`."""
    package = Path(exo.__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(package)]
    if not own:
        return "outside of exo"
    return f"{Path(own[-1].filename).relative_to(package)}:{own[-1].lineno}, {own[-1].name}"


def _listen_to_worker(threads: ThreadShare) -> None:
    """Standard input closes when the worker ends, however it ends: nobody would ever stop this process then."""
    for line in sys.stdin:
        threads.most = RunnerShare.model_validate_json(line).threads
    os._exit(0)


if __name__ == "__main__":
    main()
