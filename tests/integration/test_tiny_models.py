"""The tiny random models that tests compare tokens of: none is so trivial that wrong tokens could be right."""

import pytest

from tests import tiny_models
from tests.conftest import TinyModels, needs_mlx

pytestmark = needs_mlx

NEW_TOKENS = 24


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
