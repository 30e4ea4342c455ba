"""How the API calls nodes, and what it says of runners that load."""

import pytest

from exo.api.cluster.health import why_not_ready
from exo.api.http.errors import CommandRefused, problem_of
from exo.api.known.nodes import find_node
from exo.api.loading import Loading
from exo.api.progress import statuses_of
from exo.domain.ids import RunnerId
from exo.domain.instance import Instance
from exo.domain.messages.beat import RunnerBeat
from exo.domain.runner_status import Connecting, Failed, RunnerStatus
from exo.domain.runner_status import Loading as LoadingStatus
from exo.domain.shard import Sharding
from exo.domain.state import State
from exo.errors import Rejected
from tests import builders


def instance(sharding: Sharding = "pipeline") -> Instance:
    return builders.instance(*builders.shards(builders.whole(builders.card(layers=30)), sharding, 2))


def state(*statuses: RunnerStatus) -> State:
    runners = {
        f"runner-{rank}": {
            "runner_id": f"runner-{rank}",
            "instance_id": "instance",
            "node_id": f"node-{rank}",
            "status": status,
            "since": 0,
            "process": "p",
        }
        for rank, status in enumerate(statuses)
    }
    return builders.state(instances=[instance()], runners=runners)


def beat(rank: int, done: int, total: int, process: str = "p") -> RunnerBeat:
    return RunnerBeat(
        runner_id=RunnerId(f"runner-{rank}"),
        process=process,
        in_flight=0,
        step_seconds=0,
        loaded_layers=done,
        total_layers=total,
    )


BOTH = state(LoadingStatus(), LoadingStatus())


def test_layers_of_a_pipeline_are_summed_over_its_ranks() -> None:
    loading = Loading()
    loading.take(beat(0, 8, 12), BOTH)
    loading.take(beat(1, 4, 18), BOTH)
    assert statuses_of(BOTH, [instance()], loading) == ["loading 12 of 30 layers"]
    assert loading.layers_of(BOTH.runners[RunnerId("runner-0")]) == (8, 12)


def test_where_every_rank_has_a_slice_of_all_layers_the_slowest_counts() -> None:
    loading = Loading()
    loading.take(beat(0, 8, 30), BOTH)
    loading.take(beat(1, 4, 30), BOTH)
    assert loading.describe(BOTH, instance("tensor")) == "4 of 30 layers"


def test_a_rank_that_has_said_nothing_or_was_another_process_counts_for_nothing() -> None:
    loading = Loading()
    assert statuses_of(BOTH, [instance()], loading) == ["loading"]
    loading.take(beat(0, 0, 0), BOTH)
    loading.take(beat(1, 9, 18, process="an earlier one"), BOTH)
    assert statuses_of(BOTH, [instance()], loading) == ["loading"]


def test_a_runner_that_loads_no_more_is_forgotten() -> None:
    loading, later = Loading(), state(LoadingStatus(), Connecting())
    loading.take(beat(1, 9, 18), BOTH)
    loading.take(beat(0, 8, 12), later)
    assert loading.describe(BOTH, instance()) == "8 of 12 layers"
    assert statuses_of(later, [instance()], loading) == ["connecting", "loading 8 of 12 layers"]


def test_a_runner_that_failed_is_told_with_its_reason() -> None:
    reason = "rank 1 on studio: no sign of life for 4 s"
    both = state(Failed(reason=reason), Failed(reason=reason)).replaced({"nodes": nodes(("abc1", "studio")).nodes})
    assert why_not_ready(both, Loading()) == (f"no model is ready: its runners failed and are started again: {reason}")


def nodes(*names: tuple[str, str]) -> State:
    return builders.state([builders.node(node_id, facts=builders.facts(hostname)) for node_id, hostname in names])


@pytest.mark.parametrize("name", ["abc1", "abc", "studio"])
def test_a_node_is_found_by_its_id_its_beginning_or_its_machine(name: str) -> None:
    assert find_node(nodes(("abc1", "studio"), ("def2", "mini")), name).node_id == "abc1"


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("laptop", "node_not_found", "'laptop' is no node; there are: abc1 (studio), abd2 (studio)"),
        ("", "node_not_found", "'' is no node"),
        ("ab", "ambiguous_node", "'ab' is more than one node: say which by its id, of abc1 (studio), abd2 (studio)"),
        ("studio", "ambiguous_node", "'studio' is more than one node: say which by its id, of abc1 (studio), abd2"),
    ],
)
def test_a_name_of_no_node_or_of_several_is_refused(name: str, code: str, reason: str) -> None:
    with pytest.raises(Rejected) as refusal:
        find_node(nodes(("abc1", "studio"), ("abd2", "studio")), name)
    assert refusal.value.reason.startswith(reason)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("code", "status"),
    [("insufficient_memory", 409), ("no_engine", 409), ("tensor_shape", 400), ("node_not_found", 404), ("?", 409)],
)
def test_a_command_that_is_refused_is_the_callers_fault(code: str, status: int) -> None:
    problem = problem_of(CommandRefused("why", code=code))
    assert problem is not None
    assert (problem.http_status, problem.code) == (status, code)
