"""Instances over HTTP: placed, deleted, and what becomes of the requests and the commands."""

import httpx
import pytest

from exo.domain.limits import SLOTS
from tests.cluster.chats import Chat, script, wait_all
from tests.cluster.history import assert_sound, state
from tests.stack import Stack, wait_until


def test_deleting_an_instance_ends_its_requests_with_the_reason(shared_stack: Stack) -> None:
    running = [Chat(shared_stack, script(400, 0.05)).wait_text() for _ in range(SLOTS)]
    queued = Chat(shared_stack, script(3))
    wait_until(lambda: len(state(shared_stack)["generations"]) == SLOTS + 1, "a queue")
    (instance_id,) = state(shared_stack)["instances"]
    deleted = httpx.delete(f"{shared_stack.url}/instance/{instance_id}", params={"wait": 5})
    assert (deleted.status_code, deleted.json()["status"]) == (200, "done")
    wait_all([*running, queued], 3)
    assert {(chat.outcome, chat.code) for chat in [*running, queued]} == {("error", "instance_deleted")}
    assert all("was unloaded" in chat.error["message"] for chat in running if chat.error)
    wait_until(lambda: shared_stack.runner_pids() == [], "the runner's end", 5)
    assert_after_placing_again(shared_stack)


def assert_after_placing_again(stack: Stack) -> None:
    """An instance can be placed, and its command's outcome read."""
    placed = httpx.post(f"{stack.url}/place_instance", params={"wait": 5}, json={"model": "scripted"})
    assert (placed.status_code, placed.json()["status"]) == (200, "done")
    command = placed.json()["id"]
    shown = httpx.get(f"{stack.url}/v1/commands/{command}").json()
    assert shown == placed.json()
    assert [one["entry"]["event"]["type"] for one in shown["events"]] == ["InstancePlaced"]
    assert_sound(stack)


def test_a_command_that_is_not_waited_for_is_found_by_its_id(shared_stack: Stack) -> None:
    accepted = httpx.delete(f"{shared_stack.url}/instance/nothing-like-this")
    assert accepted.status_code == 202
    where = f"{shared_stack.url}{accepted.headers['location']}"
    wait_until(lambda: httpx.get(where).json()["status"] == "rejected", "the refusal")
    assert httpx.get(where).json()["code"] == "instance_not_found"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("DELETE", "/instance/nothing-like-this?wait=5", None, 404, "instance_not_found"),
        ("POST", "/v1/cancel/nothing-like-this?wait=5", None, 404, "generation_not_found"),
        ("POST", "/place_instance?wait=5", {"model": "nothing-like-this"}, 404, "model_not_found"),
        ("GET", "/v1/commands/00000000000000000000000000000000", None, 200, None),
    ],
)
def test_a_refusal_that_is_waited_for_is_an_http_error(
    shared_stack: Stack, method: str, path: str, body: object, status: int, code: str | None
) -> None:
    answer = httpx.request(method, f"{shared_stack.url}{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json().get("error", {}).get("code") == code


def test_a_generation_is_cancelled_by_its_completions_id(shared_stack: Stack) -> None:
    chat = Chat(shared_stack, script(400, 0.05)).wait_text()
    answer = httpx.post(f"{shared_stack.url}/v1/cancel/chatcmpl-{chat.task_id}", params={"wait": 5})
    assert answer.status_code == 200, answer.text
    assert (chat.wait(2).outcome, chat.code) == ("error", "cancelled")


def test_what_is_unloaded_stays_so_also_when_the_api_met_it_loaded(stack: Stack) -> None:
    stack.kill("api")
    stack.start(["api"])
    stack.wait_ready()
    (instance_id,) = state(stack)["instances"]
    unloaded = stack.cli("unload", instance_id[:8])
    assert unloaded.stdout == f"{instance_id} is unloaded\n", unloaded.stderr
    # Whoever placed the default model again would have been before this command.
    placed = httpx.post(f"{stack.url}/place_instance", params={"wait": 5}, json={"model": "scripted"})
    (event,) = placed.json()["events"]
    assert list(state(stack)["instances"]) == [event["entry"]["event"]["instance"]["instance_id"]]
