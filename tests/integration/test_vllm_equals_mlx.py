"""vLLM and MLX give the same greedy answers with the same float32 model, as far as float32 decides them.

Both add the same products in other orders, so their logprobs differ in the last digits, and where the two likeliest
tokens are closer than that, either may come first. There the prompt goes on with what MLX chose, for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_calls import drain, tokens_by_task

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import EngineName
from exo.models.catalog import embedded
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, TokenOutput
from tests import builders
from tests.conftest import needs_mlx, needs_vllm

pytestmark = [needs_vllm, needs_mlx, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of vLLM and torch

GREEDY = SamplingParams(temperature=0, max_tokens=24)
TOKENS = 64
"""Of each answer."""
FLOAT_ERROR = 1e-3
"""By how much a logprob may differ between two orders of adding. A float32 is exact to 6e-8 of its size; logits are up
to some 30 large, sums of 576 products of what 30 layers have passed on, each layer with sums of up to 1,536 of its own:
a few hundred roundings of 2e-6 add up to some 1e-4. The largest difference of all is printed, and held to this."""

CHATS = (
    "What is the capital of France?",
    "Hi",
    "Write a story about a lighthouse keeper.",
    "Explain photosynthesis to a child in three sentences.",
    "Name five rivers, one in each line.",
    "What is 17 + 25? Think step by step.",
    "Write a Python function that reverses a string.",
    'Answer with a JSON object that has the keys "city" and "population".',
    "Wie heißt die Hauptstadt von Österreich?",
    "¿Qué es un eclipse?",
    "日本の首都はどこですか。",
    "Что такое облако?",
    "ما هي عاصمة مصر؟",
    "🙂🙃🚀 What do these mean?",
    "Repeat: " + "the sea is deep and wide, " * 40,
    "Summarize this. " + "The keeper wrote down every ship that went by, its name, its flag and its hour. " * 60,
)
TEXTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time",
    "1, 2, 3, 4, 5, 6,",
    "<html>\n<head>\n<title>Ships</title>\n",
)
"""Not chats: they are continued as they stand."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token of an answer."""

    token: int
    logprob: float
    gap: float
    """From the likeliest token to the next one."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two answers part."""

    prompt: str
    place: int
    mlx: Step
    vllm: Step

    def __str__(self) -> str:
        return (
            f"token {self.place} of the answer to {self.prompt[:40]!r}: MLX {self.mlx.token}, vLLM {self.vllm.token}; "
            f"their gaps to the next likeliest are {self.mlx.gap:.1e} and {self.vllm.gap:.1e}"
        )


@pytest.fixture(scope="module")
def engines(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[EngineName, Engine]]:
    names: tuple[EngineName, ...] = ("mlx", "vllm")
    made = {name: make_engine(name, tmp_path_factory.mktemp(name)) for name in names}
    for one in made.values():
        one.load(builders.whole(embedded()), embedded_model, lambda done, total: None)
    yield made
    for one in made.values():
        one.close()


def test_twenty_prompts_have_the_same_answers(engines: Mapping[EngineName, Engine]) -> None:
    tokenizer = engines["mlx"].tokenizer
    prompts = {text: tokenizer.encode_chat([{"role": "user", "content": text}]) for text in CHATS}
    prompts |= {text: tokenizer.encode_text(text) for text in TEXTS}
    assert len(prompts) == 20
    partings: list[Parting] = []
    errors: list[float] = []
    left = {text: TOKENS for text in prompts}
    while left:
        given = {name: answers(one, [(prompts[text], left[text]) for text in left]) for name, one in engines.items()}
        for text, mlx, vllm in zip(list(left), given["mlx"], given["vllm"], strict=True):
            same = same_tokens(mlx, vllm)
            errors += [abs(one.logprob - other.logprob) for one, other in zip(mlx[:same], vllm[:same], strict=True)]
            more = left.pop(text) - same - 1
            if same == len(mlx) == len(vllm):
                continue
            partings.append(Parting(text, TOKENS - more - 1, mlx[same], vllm[same]))
            prompts[text] = [*prompts[text], *(step.token for step in mlx[: same + 1])]
            if more > 0 and mlx[same].token not in tokenizer.end_tokens:
                left[text] = more
    print(f"\n{len(errors)} tokens are the same; their logprobs differ by {max(errors):.1e} at most")
    print("\n".join(map(str, partings)) or "no answers part")
    assert max(errors) < FLOAT_ERROR
    assert [str(one) for one in partings if max(one.mlx.gap, one.vllm.gap) > 2 * FLOAT_ERROR] == []


@pytest.mark.parametrize("context", [3, 6, 20, 400])
def test_a_repetition_penalty_looks_back_equally_far(engines: Mapping[EngineName, Engine], context: int) -> None:
    """Beside a request without one."""
    penalized = GREEDY.model_copy(update={"repetition_penalty": 1.5, "repetition_context": context})
    tokens = engines["mlx"].tokenizer.encode_text("1, 2, 3, 1, 2, 3, 1, 2, 3,")
    found: list[Mapping[TaskId, list[int]]] = []
    for engine in engines.values():
        for name, params in {"free": GREEDY, "penalized": penalized}.items():
            engine.submit(TaskId(name), tokens, params)
        found.append(tokens_by_task(drain(engine)))
    assert found[0] == found[1]
    assert found[0][TaskId("free")] != found[0][TaskId("penalized")]


def same_tokens(one: Sequence[Step], other: Sequence[Step]) -> int:
    """How many of the first are the same."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a.token != b.token), min(len(one), len(other)))


def answers(engine: Engine, asked: Sequence[tuple[Sequence[int], int]]) -> list[list[Step]]:
    """Greedy answers to prompts, side by side, each of so many tokens at most."""
    found: dict[TaskId, list[Step]] = {}
    for prompt, most in asked:
        task_id = TaskId(str(len(found)))
        found[task_id] = []
        engine.submit(task_id, prompt, SamplingParams(temperature=0, max_tokens=most, logprobs=2))
    for output in drain(engine):
        if isinstance(output, TokenOutput):
            assert output.logprobs is not None
            first, second = output.logprobs.top_logprobs
            step = Step(output.token, output.logprobs.logprob, first.logprob - second.logprob)
            found[output.task_id].append(step)
    return list(found.values())
