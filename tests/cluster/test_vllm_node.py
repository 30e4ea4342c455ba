"""A whole node on vLLM, from `exo` commands to an answer of a real model."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exo.models.catalog import EMBEDDED
from tests.cluster.node_contract import NodeContract
from tests.conftest import needs_vllm, real_node
from tests.stack import Stack, wait_until

pytestmark = [needs_vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def node(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with real_node("vllm", embedded_model, tmp_path_factory.mktemp("node") / "home") as stack:
        yield stack


def asked(node: Stack, **fields: object) -> httpx.Response:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"model": EMBEDDED, "messages": messages, "temperature": 0, "max_tokens": 20, **fields}
    return httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=90)


def test_the_model_is_placed_on_vllm_and_answers(node: Stack) -> None:
    answer = asked(node).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
    instances = httpx.get(f"{node.url}/state/instances").json()
    assert {instance["engine"] for instance in instances.values()} == {"vllm"}


def test_an_answer_is_held_to_a_schema(node: Stack) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    content = asked(node, response_format=form, max_tokens=60).json()["choices"][0]["message"]["content"]
    assert '"city"' in content


def test_a_stop_ends_the_generation_within_the_engine(node: Stack) -> None:
    answer = asked(node, stop=["Paris"], max_tokens=200).json()
    assert "Paris" not in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    wait_until(lambda: not httpx.get(f"{node.url}/state/generations").json(), "the end", 5)


def test_what_vllm_does_not_do_is_refused_by_its_name(node: Stack) -> None:
    vectors = httpx.post(f"{node.url}/v1/embeddings", json={"model": EMBEDDED, "input": "x"}, timeout=30).json()
    assert vectors["error"]["code"] == "embeddings_not_supported"


class TestVllmNode(NodeContract):
    """All of the contract."""

    model = EMBEDDED
