"""Loads weights as vLLM does, and tells how far it is: a load format in vLLM's own registry of them.

Ranks of a model over several GPUs load in processes of their own, so what is told goes through a file.
"""

import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from torch import nn
from vllm.config import LoadConfig, ModelConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

FORMAT = "exo"
"""Its name in the registry."""
TOLD_FILE = "progress_file"
"""The entry of the loader's configuration that names the file."""
LOOK_PAUSE = 0.2
"""Seconds between two looks at the file."""
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
"""In a weight's name; by what the families call their layers."""


@register_model_loader(FORMAT)
class TellingLoader(DefaultModelLoader):
    """Writes the number of layers of which it has met weights."""

    def __init__(self, load_config: LoadConfig) -> None:
        extra = dict(cast(dict[str, str], load_config.model_loader_extra_config))
        self._file = Path(extra.pop(TOLD_FILE))
        super().__init__(replace(load_config, load_format="auto", model_loader_extra_config=extra))

    def get_all_weights(
        self, model_config: ModelConfig, model: nn.Module
    ) -> Generator[tuple[str, torch.Tensor], None, None]:
        """Every weight by its name, as the files hold them."""
        met: set[str] = set()
        for name, weight in super().get_all_weights(model_config, model):
            layer = _LAYER.search(name)
            if layer is not None and layer[1] not in met:
                met.add(layer[1])
                self._file.write_text(str(len(met)))
            yield name, weight


@contextmanager
def told(layers: int, on_progress: Callable[[int, int], None]) -> Generator[Path]:
    """A file for the loader. While the block runs, `on_progress` is called from a thread as the number in it grows, and
    at the block's good end."""
    with TemporaryDirectory(prefix="exo-") as folder:
        yield from _watched(Path(folder, "layers"), layers, on_progress)
    on_progress(layers, layers)


def _watched(file: Path, layers: int, on_progress: Callable[[int, int], None]) -> Generator[Path]:
    over = threading.Event()
    file.write_text("0")

    def look() -> None:
        before = 0
        while not over.wait(LOOK_PAUSE):
            text = file.read_text()  # empty in the moment in which it is written anew
            if text and int(text) != before:
                before = int(text)
                on_progress(min(before, layers), layers)

    on_progress(0, layers)
    watching = threading.Thread(target=look, name="progress", daemon=True)
    watching.start()
    try:
        yield file
    finally:
        over.set()
        watching.join()
