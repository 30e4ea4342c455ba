"""What events name, and what people may call it."""

import pytest

from exo.domain.ids import ApiId, InstanceId, MessageId, ModelId, NodeId, TaskId
from exo.domain.messages.events import (
    CommandRejected,
    Entry,
    Event,
    GenerationDispatched,
    GenerationQueued,
    NodeLost,
    Recorded,
)
from exo.errors import Rejected
from exo.log.explain.entities import Entity, Search, matches, mentions

HEX = "0123456789abcdef0123456789abcdef"


def recorded(event: Event, source: str = "api-1", cause: str | None = "message-1") -> Recorded:
    entry = Entry(recorded_at=1.0, cause_id=MessageId(cause) if cause else None, source=source, event=event)
    return Recorded(position=1, entry=entry)


def queued(task: str = "task-1", key: str = "anna", prompt: str | None = None) -> Recorded:
    event = GenerationQueued(
        task_id=TaskId(task),
        model_id=ModelId("maker/Model"),
        estimated_tokens=1,
        key=key,
        reply_to=ApiId("api-1"),
        prompt=prompt,
    )
    return recorded(event)


def found(text: str, *events: Recorded) -> Entity:
    search = Search(text)
    for one in events:
        search.add(one)
    return search.result()


def test_an_event_names_its_ids_its_sender_and_its_cause() -> None:
    assert mentions(queued()) == {
        Entity("generation", "task-1"): "",
        Entity("model", "maker/Model"): "Model",
        Entity("key", "anna"): "",
        Entity("api", "api-1"): "",
        Entity("command", "message-1"): "",
    }
    assert Entity("sender", "worker") in mentions(recorded(NodeLost(node_id=NodeId("n"), reason="x"), source="worker"))


def test_a_prompt_that_holds_an_id_does_not_name_it() -> None:
    assert not matches(queued(prompt="tell me about task-2"), Entity("generation", "task-2"))


def test_a_refusal_names_what_its_reason_quotes() -> None:
    refused = recorded(CommandRejected(command="DeleteInstance", code="instance_not_found", reason="no instance 'i-7'"))
    assert matches(refused, Entity("instance", "i-7"))
    assert not matches(refused, Entity("instance", "i"))


def test_a_beginning_a_short_name_and_a_completions_id_are_enough() -> None:
    assert found("tas", queued()) == Entity("generation", "task-1")
    assert found("MODEL", queued()) == Entity("model", "maker/Model")
    assert found("chatcmpl-task-1", queued()) == Entity("generation", "task-1")


def test_the_whole_id_goes_before_a_beginning() -> None:
    assert found("task-1", queued("task-12"), queued("task-1")) == Entity("generation", "task-1")


def test_a_beginning_of_several_is_refused_and_they_are_listed() -> None:
    with pytest.raises(Rejected, match="may be any of: generation task-1, generation task-2; write more of it"):
        found("task", queued("task-1"), queued("task-2"))
    with pytest.raises(Rejected, match="and 88 more"):
        found("t", *[queued(f"t-{number}") for number in range(100)])


def test_what_nothing_names_is_not_found() -> None:
    with pytest.raises(Rejected, match="no event of this log names 'nobody'") as error:
        found("nobody", queued())
    assert (error.value.code, error.value.param) == ("not_found", "entity")
    with pytest.raises(Rejected):
        found("anything")


def test_a_sender_that_is_known_as_something_else_is_one_thing() -> None:
    lost = recorded(NodeLost(node_id=NodeId(HEX), reason="silent"), source="elsewhere")
    by_node = recorded(GenerationDispatched(task_id=TaskId("t"), instance_id=InstanceId("i")), source=HEX)
    assert found(HEX, by_node, lost) == Entity("node", HEX)
    assert found(HEX, by_node) == Entity("sender", HEX)
