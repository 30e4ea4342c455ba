"""How far runners are that read their weights: a gauge, by their signs of life."""

from collections.abc import Sequence

from exo.domain.ids import RunnerId
from exo.domain.instance import Instance
from exo.domain.messages.beat import RunnerBeat
from exo.domain.runner_status import Loading as LoadingStatus
from exo.domain.state import Runner, State

Layers = tuple[int, int]
"""Those whose weights are in memory, and of how many."""


class Loading:
    """The last beats of the runners that load."""

    def __init__(self) -> None:
        self._beats: dict[RunnerId, RunnerBeat] = {}

    def take(self, beat: RunnerBeat, state: State) -> None:
        """Keep what a beat says. Forgets runners that do not load any more."""
        if beat.total_layers:
            self._beats[beat.runner_id] = beat
        gone = [runner_id for runner_id in self._beats if not _is_loading(state.runners.get(runner_id))]
        for runner_id in gone:
            del self._beats[runner_id]

    def layers_of(self, runner: Runner) -> Layers | None:
        """How far a runner is; None where it does not load, or has said nothing yet."""
        beat = self._beats.get(runner.runner_id)
        if beat is None or beat.process != runner.process or not _is_loading(runner):
            return None
        return beat.loaded_layers, beat.total_layers

    def describe(self, state: State, instance: Instance) -> str:
        """`12 of 30 layers` over all ranks that load; empty where none has said anything."""
        ranks = [state.runners[runner_id] for runner_id in instance.runner_ids]
        known = [layers for runner in ranks if (layers := self.layers_of(runner)) is not None]
        if not known:
            return ""
        done, total = _together(known, whole=instance.shards[0].sharding == "tensor")
        return f"{done} of {total} layers"


def _is_loading(runner: Runner | None) -> bool:
    return runner is not None and isinstance(runner.status, LoadingStatus)


def _together(ranks: Sequence[Layers], *, whole: bool) -> Layers:
    """Of a pipeline the sum; where every rank has a slice of all layers, the slowest one."""
    if whole:
        return min(ranks)
    return sum(done for done, _ in ranks), sum(total for _, total in ranks)
