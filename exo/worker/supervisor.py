"""Starts runner processes, watches them, stops them. What it sees it reports; what follows is the master's."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from exo.bus.client import Bus, new_id
from exo.bus.inbox import send_report
from exo.bus.replica import Replica
from exo.config import Settings
from exo.domain.ids import RunnerId
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.reports import RunnerStatusSeen
from exo.domain.plan import StartRunner
from exo.domain.runner_spec import RunnerShare, RunnerSpec
from exo.domain.runner_status import Connecting, Failed, RunnerStatus, Stopped
from exo.domain.state import State
from exo.node.cores import compute_cores
from exo.process import module_command
from exo.worker.last_words import last_words

logger = logging.getLogger(__name__)

REPORT_PATIENCE = 3600.0
STOP_PATIENCE = 2.0
"""Seconds between asking a runner to end and making it."""
SILENT = 20.0
"""Seconds without a sign of life, while NATS is there, after which a runner is taken for dead."""
LAST_WORDS = 1.0
"""Seconds to wait for the rest of what a runner said. A process that it had started may hold its standard error."""
FOLD_PATIENCE = 30.0
"""Seconds to wait for the master to record what was reported."""


@dataclass(slots=True)
class _Supervised:
    runner_id: RunnerId
    process: str
    child: asyncio.subprocess.Process | None = None
    said: asyncio.Task[str] | None = None
    """Reads what the child says, and knows its last words. Set with `child`."""
    seen_at: float = field(default_factory=time.monotonic)
    """Of the last sign of life."""
    stop_reason: str | None = None
    """Why it is being ended by this worker because something is wrong with it."""
    wanted_stop: bool = False


class Supervisor:
    """All runner processes of a node."""

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        replica: Replica,
        changed: Callable[[], None],
        cores: Callable[[], int] = compute_cores,
    ) -> None:
        """`changed` is called when a process has ended; `cores` are those to divide over the runners."""
        self._settings = settings
        self._bus = bus
        self._replica = replica
        self._changed = changed
        self._cores = cores
        self._supervised: dict[RunnerId, _Supervised] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def processes(self) -> dict[RunnerId, str]:
        """The current start of each runner."""
        return {runner_id: supervised.process for runner_id, supervised in self._supervised.items()}

    def start(self, action: StartRunner, folder: str) -> None:
        """Begin to start a process for a shard; it is watched until it ends."""
        runner_id = action.shard.runner_id
        if runner_id in self._supervised:
            return
        supervised = _Supervised(runner_id, process=new_id())
        self._supervised[runner_id] = supervised
        self._share_cores()
        spec = RunnerSpec(
            process=supervised.process,
            instance=action.instance,
            shard=action.shard,
            folder=folder,
            cache_dir=str(self._settings.cache_dir),
            nats_url=self._settings.nats_url,
            cluster=self._settings.cluster,
            log_level=self._settings.log_level,
            log_format=self._settings.log_format,
            step_timeout=self._settings.step_timeout,
            ray=self._settings.ray,
        )
        task = asyncio.create_task(self._run(supervised, spec))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self, runner_id: RunnerId, reason: str) -> None:
        """Begin to end a runner's process."""
        supervised = self._supervised.get(runner_id)
        if supervised is not None and not supervised.wanted_stop and not _has_ended(supervised.child):
            logger.info("stopping runner %s: %s", runner_id, reason)
            supervised.wanted_stop = True
            self._end(supervised)

    def beat(self, beat: RunnerBeat) -> None:
        """A runner lives. One whose step takes too long is ended."""
        supervised = self._supervised.get(beat.runner_id)
        if supervised is None or supervised.process != beat.process:
            return
        supervised.seen_at = time.monotonic()
        if beat.step_seconds > self._settings.step_timeout:
            self._fail(supervised, f"a step of the engine did not end within {self._settings.step_timeout:.0f} s")

    def check(self) -> None:
        """End runners that show no sign of life. Nobody is silent while NATS is away."""
        now = time.monotonic()
        for supervised in list(self._supervised.values()):
            if not self._bus.is_connected or supervised.child is None:
                supervised.seen_at = now
            elif now - supervised.seen_at > SILENT:
                self._fail(supervised, f"no sign of life for {SILENT:.0f} s")

    async def close(self) -> None:
        """End all processes and wait for that."""
        for runner_id in list(self._supervised):
            self.stop(runner_id, "the worker stops")
        watching = list(self._tasks)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)  # a process that was just being started is killed here
        for one in self._supervised.values():
            if one.child is not None and one.said is not None:
                await one.child.wait()
                await _heard(one.said)

    async def _run(self, supervised: _Supervised, spec: RunnerSpec) -> None:
        await self._report(supervised, Connecting())
        await self._report(supervised, await self._run_child(supervised, spec))
        await self._replica.wait_for(lambda state: _is_recorded(state, supervised), FOLD_PATIENCE)
        del self._supervised[supervised.runner_id]
        self._share_cores()
        self._changed()

    async def _run_child(self, supervised: _Supervised, spec: RunnerSpec) -> RunnerStatus:
        """Start the process and wait for its end; what that makes of the runner."""
        if supervised.wanted_stop:
            return Stopped()
        try:
            child = await asyncio.create_subprocess_exec(
                *module_command("exo.runner.main"),
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            logger.error("runner %s cannot be started: %s", supervised.runner_id, error)
            return Failed(reason=f"the runner's process could not be started: {error}")
        assert child.stderr is not None  # asked for above
        supervised.child = child
        supervised.said = said = asyncio.create_task(last_words(child.stderr))
        supervised.seen_at = time.monotonic()
        logger.info("started runner %s, process %d", spec.shard.runner_id, child.pid)
        if supervised.wanted_stop:
            self._end(supervised)  # asked for while the process was being started
        # Only now, since others may have come or gone while it was being started.
        code = await _told(child, spec.replaced({"threads": self._threads()}))
        return _final_status(supervised, code, await _heard(said))

    def _threads(self) -> int:
        """A runner's part of the cores."""
        return self._settings.cpu_threads or max(1, self._cores() // max(1, len(self._supervised)))

    def _share_cores(self) -> None:
        """Tell every runner that runs its part."""
        line = RunnerShare(threads=self._threads()).model_dump_json().encode() + b"\n"
        for supervised in self._supervised.values():
            stdin = supervised.child.stdin if supervised.child is not None else None
            if stdin is not None and not stdin.is_closing():
                stdin.write(line)

    def _fail(self, supervised: _Supervised, reason: str) -> None:
        if supervised.stop_reason is None and not supervised.wanted_stop:
            logger.error("ending runner %s: %s", supervised.runner_id, reason)
            supervised.stop_reason = reason
            _signal(supervised.child, signal.SIGKILL)

    def _end(self, supervised: _Supervised) -> None:
        _signal(supervised.child, signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_PATIENCE, _signal, supervised.child, signal.SIGKILL)

    async def _report(self, supervised: _Supervised, status: RunnerStatus) -> None:
        report = RunnerStatusSeen(runner_id=supervised.runner_id, process=supervised.process, status=status)
        await send_report(self._bus, supervised.runner_id, report, REPORT_PATIENCE)


async def _told(child: asyncio.subprocess.Process, spec: RunnerSpec) -> int:
    """The exit code of a runner that was told what to be."""
    assert child.stdin is not None  # asked for at its start
    try:
        child.stdin.write(spec.model_dump_json().encode() + b"\n")
        await child.stdin.drain()
        return await child.wait()
    except (OSError, RuntimeError):  # it has ended already; RuntimeError is uvloop's word for a closed pipe
        return await child.wait()
    finally:
        child.stdin.close()


async def _heard(said: asyncio.Task[str]) -> str:
    """The last words of a process that has ended."""
    done, _ = await asyncio.wait([said], timeout=LAST_WORDS)
    if not done:
        said.cancel()
    return said.result() if done else ""


def _final_status(supervised: _Supervised, code: int, said: str) -> RunnerStatus:
    """`said`: the last line on its standard error; whoever was killed could not say why."""
    if supervised.wanted_stop:
        return Stopped()
    if supervised.stop_reason is not None:
        return Failed(reason=supervised.stop_reason)
    if code == -signal.SIGKILL:
        return Failed(reason="the runner's process was killed by SIGKILL")
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return Failed(reason=f"the runner's process {how}" + (f"; the last that it said: {said}" if said else ""))


def _is_recorded(state: State, supervised: _Supervised) -> bool:
    """Whether the master knows of the end: until then the runner must not be started again."""
    runner = state.runners.get(supervised.runner_id)
    ended = runner is not None and isinstance(runner.status, Failed | Stopped)
    return runner is None or runner.process != supervised.process or ended


def _has_ended(child: asyncio.subprocess.Process | None) -> bool:
    return child is not None and child.returncode is not None


def _signal(child: asyncio.subprocess.Process | None, number: signal.Signals) -> None:
    if child is not None and not _has_ended(child):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            logger.debug("process %d has ended already", child.pid)
