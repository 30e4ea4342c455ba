"""What a node says when it has joined, and when it answers."""

from exo.api.default_model import ready_block
from exo.config import Settings
from exo.domain.ids import NodeId
from exo.domain.state import State
from exo.worker.main import joined
from tests import builders


def nodes(*names: tuple[str, str]) -> State:
    return builders.state([builders.node(node_id, facts=builders.facts(hostname)) for node_id, hostname in names])


def test_a_node_that_joins_says_whom() -> None:
    three = nodes(("abc1", "vm"), ("def2", "vm"), ("987f", "mini"))
    said = joined(three, NodeId("def2"), "home")
    assert said == "joined the cluster 'home' beside mini, vm (abc1); this node is vm (def2), def2"


def test_the_first_node_says_that_it_is_the_first() -> None:
    said = joined(nodes(("abc1", "vm")), NodeId("abc1"), "home")
    assert said == "joined the cluster 'home' as its first node; this node is vm, abc1"


def test_a_node_that_answers_names_the_others_where_there_are_any() -> None:
    card = builders.card()
    assert "with maker/model, on the nodes mini, vm\n" in ready_block(Settings(), card, ["mini", "vm"], needs_key=False)
    assert "with maker/model\n" in ready_block(Settings(), card, ["vm"], needs_key=False)
