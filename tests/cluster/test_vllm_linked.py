"""vLLM prefills and MLX decodes, and the other way round: a real model on both engines of one node."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exo.models.catalog import EMBEDDED
from tests.cluster.linked_pairs import LONG_PROMPT, Linked, placed_on
from tests.conftest import needs_mlx, needs_vllm
from tests.stack import Stack

pytestmark = [needs_vllm, needs_mlx, pytest.mark.slow]


@pytest.fixture(scope="module")
def node(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node with one instance of the model on each engine."""
    folder = str(embedded_model.parent)
    home = tmp_path_factory.mktemp("node") / "home"
    stack = Stack(home, engine="vllm,mlx", default_model="none", model_folders=folder, offline="1")
    try:
        stack.start()
        stack.wait_worker()
        for engine in ("vllm", "mlx"):
            placed_on(stack, EMBEDDED, "--engine", engine)
        yield stack
    finally:
        stack.stop()


def instance_on(node: Stack, engine: str) -> str:
    found = httpx.get(f"{node.url}/state/instances").json()
    return next(instance_id for instance_id, one in found.items() if one["engine"] == engine)


@pytest.mark.parametrize(("prefill", "decode"), [("vllm", "mlx"), ("mlx", "vllm")])
def test_one_engine_prefills_and_the_other_answers_the_same(node: Stack, prefill: str, decode: str) -> None:
    linked = Linked(node, EMBEDDED, instance_on(node, prefill), instance_on(node, decode))
    prompt = LONG_PROMPT.format(name=f"{prefill}-{decode}")
    with linked.link():
        elsewhere = linked.ask(prompt)
    assert elsewhere.instance_id == linked.decode_id
    assert elsewhere.attempt is not None
    assert elsewhere.attempt.error == ""
    assert elsewhere.attempt.instance_id == linked.prefill_id
    assert elsewhere.prompt_tokens - 16 <= elsewhere.attempt.tokens < elsewhere.prompt_tokens
    assert elsewhere.text == linked.own(prompt).text
