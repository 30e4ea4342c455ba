"""The tiny random models: each loads in the MLX engine, which gives the tokens of mlx-lm's own generation."""

from importlib.util import find_spec

import pytest

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.runner.engines import make_engine
from exo.runner.engines.base import TokenOutput
from tests import tiny_models
from tests.conftest import TinyModels

if find_spec("mlx") is None:
    pytest.skip("the mlx extra is not installed", allow_module_level=True)

LENGTHS = (1, 7, 40, 200)
"""Of prompts, in tokens: below and above the sliding windows."""
NEW_TOKENS = 24


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_the_engine_gives_the_tokens_of_mlx_lm(family: str, tiny_model: TinyModels) -> None:
    folder = tiny_model(family)
    engine = make_engine("mlx", tiny_models.BLAS_CACHE)
    engine.load(tiny_models.shard(family), folder, lambda done, total: None)
    found: dict[TaskId, list[int]] = {TaskId(f"prompt-of-{length}"): [] for length in LENGTHS}
    for task_id, length in zip(found, LENGTHS, strict=True):
        engine.submit(task_id, tiny_models.prompt(length), SamplingParams(temperature=0, max_tokens=NEW_TOKENS))
        while engine.in_flight:
            for output in engine.step():
                if isinstance(output, TokenOutput):
                    found[task_id].append(output.token)
    engine.close()
    expected = [tiny_models.greedy_tokens(folder, tiny_models.prompt(length), NEW_TOKENS) for length in LENGTHS]
    assert list(found.values()) == expected


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_the_models_are_no_trivial_ones(family: str, tiny_model: TinyModels) -> None:
    """Tokens follow from the whole prompt, differ from each other, and no two of them are close to a tie."""
    folder = tiny_model(family)
    prompt = tiny_models.prompt(40)
    tokens = tiny_models.greedy_tokens(folder, prompt, NEW_TOKENS)
    assert len(tokens) == NEW_TOKENS
    assert len(set(tokens)) > NEW_TOKENS // 2
    assert tiny_models.greedy_gap(folder, prompt, NEW_TOKENS) > 1e-3
    assert tiny_models.greedy_tokens(folder, [prompt[0] + 1, *prompt[1:]], NEW_TOKENS) != tokens


def test_a_chat_is_told_by_the_template_and_comes_back_as_text(tiny_model: TinyModels) -> None:
    from exo.runner.tokenizer import HuggingFaceTokenizer

    tokenizer = HuggingFaceTokenizer(tiny_model("llama"))
    tokens = tokenizer.encode_chat([{"role": "user", "content": "Grüße an den Leuchtturm 🗼"}])
    detokenizer = tokenizer.detokenizer()
    assert "".join(map(detokenizer.push, tokens)) == "user\nGrüße an den Leuchtturm 🗼\nassistant\n"
    assert max(tokens) < tiny_models.VOCABULARY
