"""Decisions on what is reported of runners."""

from collections.abc import Collection
from typing import assert_never

from exo.domain import limits
from exo.domain.decide import ending
from exo.domain.ids import RunnerId
from exo.domain.instance import Instance
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
from exo.domain.state import Runner, State, generations_on, host_of, is_up

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
            instance = state.instances[runner.instance_id]
            ended = _end_running(state, runner, f"the runner on {host_of(state, runner.node_id)} was stopped")
            others = fail_others(state, instance, [runner.runner_id], "another rank was stopped", now)
            return [*ended, RunnerStopped(runner_id=runner.runner_id), *others]
        case _:
            assert_never(status)


def fail_runner(state: State, runner: Runner, failed: Failed, now: float) -> list[Event]:
    """What ran on it ends in an error; it is started again after a pause, or its instance is given up.

    With it fail the other ranks of its instance, for the same reason: without it they are of no use, and hang. All are
    started again together.
    """
    instance = state.instances[runner.instance_id]
    reason = _named(state, instance, runner, failed)
    ranks = [state.runners[runner_id] for runner_id in instance.runner_ids]
    failures = 1 + max(rank.failures for rank in ranks)
    retry_at = now + limits.backoff(failures)
    events = [RunnerFailed(runner_id=rank.runner_id, reason=reason, retry_at=retry_at) for rank in ranks]
    if failed.permanent or failures >= limits.RUNNER_FAILURES:
        times = "" if failed.permanent else f" ({failures} times in a row)"
        return [*events, *ending.fail_instances(state, [instance], reason + times)]
    return [*_end_running(state, runner, f"the runner failed: {reason}"), *events]


def fail_others(
    state: State, instance: Instance, gone: Collection[RunnerId], reason: str, now: float
) -> list[RunnerFailed]:
    """The ranks of an instance that are up while those in `gone` are not any more, failed, to be started again soon."""
    retry_at = now + limits.BACKOFF_FIRST
    up = [runner_id for runner_id in instance.runner_ids if is_up(state.runners[runner_id]) and runner_id not in gone]
    return [RunnerFailed(runner_id=runner_id, reason=reason, retry_at=retry_at) for runner_id in up]


def _named(state: State, instance: Instance, runner: Runner, failed: Failed) -> str:
    """Which of several ranks it was: those that this one lost, where it lost any."""
    if len(instance.shards) == 1:
        return failed.reason
    ranks = failed.lost or (instance.runner_ids.index(runner.runner_id),)
    found = [shard for shard in instance.shards if shard.rank in ranks]
    who = ", ".join(f"rank {shard.rank} on {host_of(state, shard.node_id)}" for shard in found)
    return f"{who}: {failed.reason}"


def _end_running(state: State, runner: Runner, error: str) -> list[Event]:
    return ending.end_generations(generations_on(state, runner.instance_id), "error", "runner_failed", error)


def _applies(runner: Runner, report: RunnerStatusSeen) -> bool:
    if isinstance(report.status, Connecting):
        return report.process != runner.process and not is_up(runner)
    if report.process != runner.process or isinstance(runner.status, Failed | Stopped):
        return False
    return _rank(report.status) > _rank(runner.status)


def _rank(status: RunnerStatus) -> int:
    """Failed and stopped come after everything."""
    return _ORDER.index(type(status)) if type(status) in _ORDER else len(_ORDER)
