"""`exo models list` beside a node that runs, and without one."""

import json

from tests.stack import Stack, free_port


def test_a_node_that_runs_is_asked_what_it_has(shared_stack: Stack) -> None:
    listed = shared_stack.cli("models", "list", "--json")
    assert [(one["card"]["model_id"], one["status"]) for one in json.loads(listed.stdout)] == [
        ("exo/scripted", "ready")
    ]
    assert listed.stderr == ""


def test_without_a_node_the_settings_of_the_shell_count_and_it_says_so(shared_stack: Stack) -> None:
    alone = Stack(shared_stack.home, api_port=str(free_port()), offline="1")
    listed = alone.cli("models", "list", "--json")
    assert "exo/scripted" not in listed.stdout
    assert all(one["status"] == "obtainable" for one in json.loads(listed.stdout))
    assert f"no node with the home {alone.home} answers: listed by the settings of this shell" in listed.stderr


def test_a_value_that_an_option_cannot_have_is_told_with_those_that_it_can(shared_stack: Stack) -> None:
    refused = shared_stack.cli("usage", "--by", "hour")
    assert "'hour' is not one of 'model', 'key'" in refused.stderr
    assert "Value error" not in refused.stderr


def test_the_node_of_another_home_is_not_asked(shared_stack: Stack) -> None:
    other = Stack(shared_stack.home.parent / "other", api_port=str(shared_stack.api_port), offline="1")
    listed = other.cli("models", "list", "--json")
    assert "exo/scripted" not in listed.stdout
    assert "no node with the home" in listed.stderr
    assert not other.home.exists()
