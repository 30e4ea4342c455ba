"""How the command line names machines that have one name."""

from io import StringIO

from rich.console import Console
from test_domain_cluster import Cluster

from exo.cli.log import view
from exo.cli.log.diff import lines
from exo.cli.status import show
from exo.domain.ids import NodeId
from exo.domain.messages.commands import LinkInstances
from exo.domain.node import Link, Machine
from exo.domain.state import State
from exo.log.explain.diff import diff


def twins() -> State:
    """Two nodes on machines that are both called `vm`."""
    cluster = Cluster()
    for name in "ab":
        cluster.join(name)
    state = cluster.state
    for node_id, node in cluster.state.nodes.items():
        facts = node.facts.replaced({"hostname": "vm"})
        state = state.replaced({"nodes": state.nodes.set(node_id, node.replaced({"facts": facts}))})
    return state


def printed(state: State) -> str:
    console = Console(file=StringIO(), width=200)
    show(state, {"ready": True}, console)
    console.print(view.state_tables(state))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_tables_tell_machines_of_one_name_apart() -> None:
    shown = printed(twins())
    for name in ("vm (a)", "vm (b)"):
        assert shown.count(name) == 2


def test_the_status_says_what_a_machine_is_and_why_its_gpu_is_idle() -> None:
    state = twins()
    node = state.nodes[NodeId("a")]
    machine = Machine(model="NVIDIA DGX Spark", kind="desktop")
    facts = node.facts.replaced({"machine": machine, "gpu_problem": "vllm: not installed"})
    shown = printed(state.replaced({"nodes": state.nodes.set(NodeId("a"), node.replaced({"facts": facts}))}))
    assert "vm (a), NVIDIA DGX Spark (desktop), x, 8 cores" in shown
    assert "vm (b), x, 8 cores" in shown
    assert shown.count("does not use its GPU") == shown.count("vm (a) does not use its GPU: vllm: not installed") == 1


def test_a_difference_shows_what_came_into_an_empty_list_and_nothing_lost() -> None:
    state = twins()
    node = state.nodes[NodeId("a")]
    link = Link(to=NodeId("b"), kind="ethernet", address="10.0.0.2")
    linked = state.replaced({"nodes": state.nodes.set(NodeId("a"), node.replaced({"links": (link,)})), "position": 9})
    shown = "\n".join(lines(diff(state, linked)))
    assert "none -> 10.0.0.2" in shown
    assert "[]" not in shown
    assert "[]" not in "\n".join(lines(diff(linked, state)))


def test_linked_instances_show_who_prefills_for_whom() -> None:
    cluster = Cluster()
    cluster.join()
    prefill, decode = cluster.place(), cluster.place()
    before = cluster.state
    assert "prefill" not in printed(before)
    cluster.tell(LinkInstances(prefill_id=prefill.instance_id, decode_id=decode.instance_id))
    shown = printed(cluster.state)
    assert f"for {decode.instance_id}" in shown
    assert f"by {prefill.instance_id}" in shown
    difference = "\n".join(lines(diff(before, cluster.state)))
    assert f"+ {decode.instance_id}  instance {prefill.instance_id} prefills for it" in difference


def test_a_difference_tells_machines_of_one_name_apart_also_from_those_that_did_not_change() -> None:
    both = twins()
    alone = both.replaced({"nodes": both.nodes.delete(NodeId("b")), "position": 1})
    assert "  - b  vm (b), " in "\n".join(lines(diff(both, alone)))
