"""What all questions about the engine start from: the model, and texts that no cache has seen."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from bench.contenders import Library, exo
from bench.figures import Measured, in_turn
from bench.streaming import stream_all
from exo.models.catalog import embedded
from exo.models.store import Store
from exo.runner.tokenizer import HuggingFaceTokenizer

MODELS = Path(__file__).parent.parent / "build" / "test-models"
STORY = ("a lighthouse stood over the grey sea and its keeper wrote down every ship that went by " * 600).split()

T = TypeVar("T")

Ask = Callable[[Sequence[str], int], Measured]
"""Has one contender answer questions side by side with so many tokens each: output tokens and seconds in all."""


@dataclass(slots=True)
class Setup:
    """The embedded model (SmolLM2-135M in float32, a context of 8,192 tokens), and how much to measure."""

    work: Path
    """For logs and homes, dropped at the end."""
    rounds: int
    scale: float
    """Of prompts and answers: 1, or less for a quick look."""
    library: Library
    """What the engine is compared with."""
    streams: Sequence[int]
    """How many at once, one number after the other, where speed is asked for."""
    folder: Path = field(init=False)
    tokenizer: HuggingFaceTokenizer = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.folder = Store(MODELS).prepare(embedded())
        self.tokenizer = HuggingFaceTokenizer(self.folder)

    @property
    def model(self) -> str:
        """The model's name in exo; a library's server is told the folder."""
        return embedded().model_id

    def tokens(self, full: int) -> int:
        """So many, or fewer for a quick look."""
        return max(8, int(full * self.scale))

    def number(self) -> int:
        """Another one each time."""
        return next(self._numbers)

    def text(self, tokens: int) -> str:
        """About so many tokens that begin like no text before: no prefix cache knows them."""
        return " ".join([f"{self.number()} ships:", *STORY[:tokens]])

    def story(self) -> str:
        """A short question, like none before, with a long answer."""
        return f"Write story number {self.number()} about the sea, as long as you can."

    def prompt(self, question: str) -> list[int]:
        """The tokens that a server makes of the question."""
        return self.tokenizer.encode_chat([{"role": "user", "content": question}])

    @contextmanager
    def stack(self, **settings: str) -> Generator[str]:
        """exo with the model, computing with one thread as all others do; its base URL."""
        own = {"model_folders": str(MODELS), "engine": self.library.engine, "cpu_threads": "1"}
        with exo(self.work, **{**own, **settings}) as url:
            yield url

    def servers_in_turn(self, measure: Callable[[str, str], T]) -> dict[str, list[T]]:
        """What was measured of exo and of the library's server, round after round.

        `measure` is told the base URL, and what the model is called there.
        """
        with self.stack() as stack, self.library.server(self.folder, self.work) as server:
            measures = {
                "exo": partial(measure, stack, self.model),
                self.library.server_name: partial(measure, server, str(self.folder)),
            }
            return in_turn(measures, self.rounds)


def over_http(url: str, model: str) -> Ask:
    """Asks a server."""
    return lambda questions, max_tokens: asyncio.run(stream_all(url, model, questions, max_tokens))
