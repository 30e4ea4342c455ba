"""Decisions on what is reported of runners."""

from typing import assert_never

from exo.domain import limits
from exo.domain.decide import ending
from exo.domain.messages.events import (
    Event,
    RunnerFailed,
    RunnerJoining,
    RunnerLoading,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
    RunnerWarming,
)
from exo.domain.messages.reports import RunnerStatusSeen
from exo.domain.runner_status import (
    Connecting,
    Failed,
    Joining,
    Loading,
    Ready,
    RunnerStatus,
    Stopped,
    Waiting,
    Warming,
)
from exo.domain.state import Runner, State, generations_on

_ORDER = (Waiting, Connecting, Joining, Loading, Warming, Ready)
"""A living process only moves to the right."""


def status_seen(state: State, report: RunnerStatusSeen, now: float) -> list[Event]:
    """The runner's next status, if it follows from the one that it has."""
    runner = state.runners.get(report.runner_id)
    if runner is None or not _applies(runner, report):
        return []
    status = report.status
    match status:
        case Waiting():
            return []
        case Connecting():
            return [RunnerStarted(runner_id=runner.runner_id, process=report.process)]
        case Joining():
            return [RunnerJoining(runner_id=runner.runner_id, port=status.port)]
        case Loading():
            return [RunnerLoading(runner_id=runner.runner_id)]
        case Warming():
            return [RunnerWarming(runner_id=runner.runner_id)]
        case Ready():
            return [RunnerReady(runner_id=runner.runner_id, tokens_per_second=status.tokens_per_second)]
        case Failed():
            return fail_runner(state, runner, status, now)
        case Stopped():
            ended = _end_running(state, runner, "the runner was stopped")
            return [*ended, RunnerStopped(runner_id=runner.runner_id)]
        case _:
            assert_never(status)


def fail_runner(state: State, runner: Runner, failed: Failed, now: float) -> list[Event]:
    """What ran on it ends in an error; it is started again after a pause, or its instance is given up."""
    failures = runner.failures + 1
    retry_at = now + limits.backoff(failures)
    event = RunnerFailed(runner_id=runner.runner_id, reason=failed.reason, retry_at=retry_at)
    if failed.permanent or failures >= limits.RUNNER_FAILURES:
        times = "" if failed.permanent else f" ({failures} times in a row)"
        instance = state.instances[runner.instance_id]
        return [event, *ending.fail_instance(state, instance, failed.reason + times)]
    return [*_end_running(state, runner, failed.reason), event]


def _end_running(state: State, runner: Runner, reason: str) -> list[Event]:
    running = generations_on(state, runner.instance_id)
    return ending.end_generations(running, "error", "runner_failed", f"the runner failed: {reason}")


def _applies(runner: Runner, report: RunnerStatusSeen) -> bool:
    if isinstance(report.status, Connecting):
        return report.process != runner.process and isinstance(runner.status, Waiting | Stopped | Failed)
    if report.process != runner.process or isinstance(runner.status, Failed | Stopped):
        return False
    return _rank(report.status) > _rank(runner.status)


def _rank(status: RunnerStatus) -> int:
    """Failed and stopped come after everything."""
    return _ORDER.index(type(status)) if type(status) in _ORDER else len(_ORDER)
