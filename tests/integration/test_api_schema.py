"""The OpenAPI document against the API that serves it, by schemathesis."""

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hub_server import hub_server
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.stack import Stack

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 8
"""For each endpoint."""
ENDLESS = {"/events"}
LOCKS = "/keys"
"""The first key that somebody makes locks the others out."""

guesses = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node that reaches a hub: where there is none, the answers are those of a server at fault."""
    node = Stack(tmp_path_factory.mktemp("node") / "home")
    with hub_server() as hub:
        node.environment["HF_ENDPOINT"] = hub.url
        try:
            yield node.start_ready()
        finally:
            node.stop()


@pytest.fixture(scope="module")
def operations(shared_stack: Stack) -> list[APIOperation]:
    """Every endpoint whose answer ends, and that does not change who may ask."""
    document = schemathesis.openapi.from_url(f"{shared_stack.url}/schema/openapi.json")
    found = [result.ok() for result in document.get_all_operations()]
    return [one for one in found if one.path not in ENDLESS and LOCKS not in one.path]


def test_whatever_comes_in_the_answer_is_one_that_is_documented(operations: list[APIOperation]) -> None:
    assert [text for operation in operations for text in surprises(operation)] == []


def surprises(operation: APIOperation) -> list[str]:
    """What came that is not documented, when it was asked with whatever its parameters and its body allow."""

    @guesses
    @given(case=operation.as_strategy())
    def guess(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "scripted"
        case.validate_response(case.call(timeout=30), checks=CHECKS)

    try:
        guess()
    except (FailureGroup, Failure) as error:
        return [f"{operation.label}: {error}"]
    return []


@pytest.fixture
def about(shared_stack: Stack) -> Iterator[dict[str, str]]:
    """What stands for each part of a path: something that is there."""
    with httpx.Client(base_url=shared_stack.url) as client:
        chat = {"model": "scripted", "messages": [{"role": "user", "content": '{"tokens": ["a"]}'}]}
        task_id = client.post("/v1/chat/completions", json=chat).json()["id"]
        instance_id = next(iter(client.get("/state/instances").json()))
        command_id = client.delete("/instance/nope").json()["command_id"]
    yield {
        "name": "exo/scripted",
        "path": "instances",
        "instance_id": instance_id,
        "command_id": command_id,
        "task_id": task_id,
        "entity": instance_id,
        "position": "1",
    }


def test_each_answer_about_what_is_there_has_the_documented_shape(
    operations: list[APIOperation], about: dict[str, str]
) -> None:
    asked = 0
    for operation in operations:
        names = [name for name in about if f"{{{name}}}" in operation.path]
        if operation.method.upper() != "GET" or operation.path.count("{") != len(names):
            continue
        query = {"/log/diff": {"a": "1"}}.get(operation.path, {})
        if operation.path in {"/instance/previews", "/instance/placement", "/instance/await"}:
            query = {"model": "scripted"}
        response = operation.Case(path_parameters={name: about[name] for name in names}, query=query).call(timeout=30)
        assert response.status_code == 200, f"{operation.path}: {response.text}"
        operation.validate_response(response)
        asked += 1
    assert asked >= 25
