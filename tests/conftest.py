"""For every test: how hypothesis runs, a fast BLAS for MLX, models that are made once, and whole nodes."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from ctypes import CDLL, byref, c_int
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from exo.models.catalog import EMBEDDED, embedded
from exo.models.store import Store
from exo.runner.engines.mlx.blas import bind_fast_blas
from tests import tiny_models
from tests.stack import Stack

# How long an example takes says more about what else runs on a machine than about the code.
settings.register_profile("exo", deadline=None)
settings.load_profile("exo")

# Before any test imports MLX: after that it is too late for the whole process.
bind_fast_blas(tiny_models.BLAS_CACHE)

needs_mlx = pytest.mark.skipif(find_spec("mlx") is None, reason="the mlx extra is not installed")

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM is installed: `make test-vllm` has one")


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU that this process sees, with a driver: a driver may be there without one."""
    try:
        driver = CDLL("libcuda.so.1")
    except OSError:
        return False
    count = c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(byref(count)) == 0 and count.value > 0


TinyModels = Callable[[str], Path]
"""The folder of the tiny model of a family."""

PREPARED_MODELS = Path(__file__).parents[1] / "build" / "test-models"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A node with the scripted engine, ready to answer. Stopped at the end, however the test ends."""
    node = Stack(tmp_path / "home")
    try:
        yield node.start_ready()
    finally:
        node.stop()


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """As `stack`, one for all tests of a module that do it no harm."""
    node = Stack(tmp_path_factory.mktemp("node") / "home")
    try:
        yield node.start_ready()
    finally:
        node.stop()


@pytest.fixture(scope="module")
def real_stack(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node that serves the embedded model on MLX, one for all tests of a module."""
    with real_node("mlx", embedded_model, tmp_path_factory.mktemp("node") / "home") as node:
        yield node


@contextmanager
def real_node(engine: str, embedded_model: Path, home: Path) -> Generator[Stack]:
    """A node that serves the embedded model on an engine."""
    node = Stack(home, engine=engine, default_model=EMBEDDED, model_folders=str(embedded_model.parent), offline="1")
    try:
        yield node.start_ready()
    finally:
        node.stop()


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The folder of the embedded model, whose parent is a folder for EXO_MODEL_FOLDERS. Made once, and kept."""
    return Store(PREPARED_MODELS).prepare(embedded())


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Gives the folder of a family's tiny random model (`tests/tiny_models.py`), built when it is first asked for."""
    root = tmp_path_factory.mktemp("tiny-models")

    def folder(family: str) -> Path:
        found = root / family
        return found if found.exists() else tiny_models.build(family, found)

    return folder
