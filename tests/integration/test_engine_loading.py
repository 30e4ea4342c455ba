"""What a damaged model folder makes of loading: a Fatal that names the file, and the tensor where it is one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from exo.errors import Fatal
from exo.runner.engines import make_engine
from exo.runner.main import warm_up
from tests import tiny_models
from tests.conftest import TinyModels, needs_mlx

pytestmark = needs_mlx

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
TENSOR = "model.layers.5.self_attn.q_proj.weight"


@pytest.fixture
def folder(tiny_model: TinyModels, tmp_path: Path) -> Path:
    """A whole model in two weight files with an index, for a test to damage."""
    copy = Path(shutil.copytree(tiny_model("llama"), tmp_path / "model"))
    split(copy)
    return copy


def split(folder: Path) -> None:
    import mlx.core as mx

    weights = dict(mx.load(str(folder / "model.safetensors")))
    parts = {FIRST: {}, SECOND: {}}
    for number, name in enumerate(sorted(weights)):
        parts[FIRST if 2 * number < len(weights) else SECOND][name] = weights[name]
    for file, part in parts.items():
        mx.save_safetensors(str(folder / file), part)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_weights(folder: Path, change: Callable[[dict], object]) -> None:
    import mlx.core as mx

    weights = dict(mx.load(str(folder / SECOND)))
    mx.eval(weights)
    change(weights)
    mx.save_safetensors(str(folder / SECOND), weights)


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def replace_shape(weights: dict) -> None:
    weights[TENSOR] = weights[TENSOR][:, :-1]


def leave_out(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.pop(TENSOR))
    index = json.loads((folder / INDEX).read_text())
    del index["weight_map"][TENSOR]
    (folder / INDEX).write_text(json.dumps(index))


def load(folder: Path, family: str = "llama") -> None:
    engine = make_engine("mlx", tiny_models.BLAS_CACHE)
    try:
        engine.load(tiny_models.shard(family), folder, lambda done, total: None)
    finally:
        engine.close()


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "no folder": (shutil.rmtree, ["model does not exist"]),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), ["config.json", "cannot be read"]),
    "a configuration of garbage": (lambda folder: (folder / "config.json").write_bytes(b"\x00\xff{"), ["config.json"]),
    "a configuration that is a list": (lambda folder: (folder / "config.json").write_text("[]"), ["config.json"]),
    "an unknown family": (
        lambda folder: change_config(folder, model_type="no_such"),
        ["config.json", "does not know the family 'no_such'", "another family"],
    ),
    "no family": (lambda folder: change_config(folder, model_type=None), ["config.json", "Model type None"]),
    "a size of the wrong kind": (lambda folder: change_config(folder, hidden_size="many"), ["config.json"]),
    "no heads": (lambda folder: change_config(folder, num_attention_heads=0, head_dim=None), ["config.json"]),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), ["no tokenizer"]),
    "a tokenizer that says nothing": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        ["tokenizer.json is no tokenizer"],
    ),
    "a tokenizer of no bytes": (lambda folder: cut(folder / "tokenizer.json", 0), ["tokenizer.json is not valid JSON"]),
    "a tokenizer cut short": (
        lambda folder: cut(folder / "tokenizer.json", 1000),
        ["tokenizer.json is not valid JSON"],
    ),
    "a tokenizer's configuration of garbage": (
        lambda folder: (folder / "tokenizer_config.json").write_text("?"),
        ["tokenizer_config.json is not valid JSON"],
    ),
    "a chat template that is none": (
        lambda folder: (folder / "chat_template.jinja").write_text("{% for %}"),
        ["chat_template.jinja", "line 1"],
    ),
    "a chat template that cannot compute": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ 1 // 0 }}"),
        ["chat_template.jinja", "ZeroDivisionError"],
    ),
    "end tokens of garbage": (
        lambda folder: (folder / "generation_config.json").write_text("garbage"),
        ["generation_config.json is not valid JSON"],
    ),
    "end tokens in a list": (
        lambda folder: (folder / "generation_config.json").write_text("[]"),
        ["generation_config.json holds no JSON object"],
    ),
    "a weight file missing": (lambda folder: (folder / SECOND).unlink(), [SECOND, "missing", INDEX]),
    "all weights missing": (
        lambda folder: [(folder / name).unlink() for name in (FIRST, SECOND, INDEX)],
        ["no safetensors file"],
    ),
    "weights cut in the data": (lambda folder: cut(folder / SECOND, 200_000), [SECOND, "200,000 bytes of"]),
    "weights cut in the header": (lambda folder: cut(folder / SECOND, 100), [SECOND]),
    "weights of no bytes": (lambda folder: cut(folder / SECOND, 0), [SECOND]),
    "weights that are an error page": (lambda folder: (folder / FIRST).write_text("<html>Not Found</html>"), [FIRST]),
    "an index of garbage": (lambda folder: (folder / INDEX).write_text("}"), [INDEX]),
    "an index that names another file": (
        lambda folder: (folder / INDEX).write_text(json.dumps({"weight_map": {TENSOR: "other.safetensors"}})),
        ["other.safetensors", INDEX],
    ),
    "an index that has a tensor elsewhere": (
        lambda folder: (folder / INDEX).write_text(json.dumps({"weight_map": {TENSOR: FIRST}})),
        [FIRST, TENSOR, INDEX],
    ),
    "a tensor missing that the index names": (
        lambda folder: change_weights(folder, lambda weights: weights.pop(TENSOR)),
        [SECOND, TENSOR],
    ),
    "a tensor missing that the index does not name": (leave_out, [TENSOR]),
    "a tensor of another shape": (lambda folder: change_weights(folder, replace_shape), [SECOND, TENSOR]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_fatal_and_the_text_names_the_file(damage: str, folder: Path) -> None:
    do, words = DAMAGES[damage]
    load(folder)  # whole, it loads
    do(folder)
    with pytest.raises(Fatal) as fatal:
        load(folder)
    assert [word for word in words if word not in str(fatal.value)] == [], str(fatal.value)


def test_a_header_that_claims_more_than_its_tensors_hold_is_refused(folder: Path) -> None:
    file = folder / SECOND
    file.write_bytes(file.read_bytes().replace(b'"shape":[96,192]', b'"shape":[96,193]'))
    with pytest.raises(Fatal, match=SECOND):
        load(folder)


def test_a_family_whose_states_cannot_be_joined_is_refused_with_the_reason(tiny_model: TinyModels) -> None:
    with pytest.raises(Fatal, match="cannot generate for several requests at once with this family"):
        load(tiny_model("llama4"), "llama4")


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('system first') }}", "{{ messages[0].no.such }}", "", "{{ messages[0]['content'] | length }}"],
)
def test_a_template_that_refuses_a_short_conversation_is_no_fault(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    engine = make_engine("mlx", tiny_models.BLAS_CACHE)
    try:
        engine.load(tiny_models.shard("llama"), folder, lambda done, total: None)
        assert warm_up(engine) >= 0
    finally:
        engine.close()
