"""OpenBLAS under MLX, each time in a fresh process: what is loaded stays loaded."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or find_spec("mlx") is None or find_spec("scipy_openblas32") is None,
    reason="for MLX's CPU build on Linux",
)

PRODUCT = """
import mlx.core as mx
import numpy
left, right = numpy.random.default_rng(1).normal(size=(2, 96, 96)).astype("float32")
difference = numpy.abs(numpy.array(mx.array(left) @ mx.array(right)) - left @ right).max()
assert difference < 1e-3, difference
"""


def run(program: str, cache: Path) -> str:
    """What the program prints. `bind()` in it binds the BLAS."""
    head = f"""
import os, pathlib
from exo.runner.engines.mlx.blas import bind_fast_blas
bind = lambda: print(bind_fast_blas(pathlib.Path({str(cache)!r})))
"""
    root = Path(__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + program], cwd=root, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_mlx_multiplies_with_openblas_and_numpy_with_its_own(tmp_path: Path) -> None:
    program = "bind()\n" + PRODUCT + "print([line for line in open('/proc/self/maps') if 'exo-openblas' in line][:1])"
    output = run(program, tmp_path)
    assert output.startswith("fast\n")
    assert str(tmp_path) in output


def test_binding_twice_is_binding_once(tmp_path: Path) -> None:
    assert run("bind()\nbind()\n" + PRODUCT + "bind()", tmp_path) == "fast\n" * 3


def test_the_environment_is_as_before(tmp_path: Path) -> None:
    assert run("bind()\nprint(os.environ.get('OPENBLAS_NUM_THREADS'))", tmp_path) == "fast\nNone\n"
    program = "os.environ['OPENBLAS_NUM_THREADS'] = '3'\nbind()\nprint(os.environ['OPENBLAS_NUM_THREADS'])"
    assert run(program, tmp_path) == "fast\n3\n"


def test_openblas_starts_no_threads(tmp_path: Path) -> None:
    assert run("bind()\nprint(len(os.listdir('/proc/self/task')))", tmp_path) == "fast\n1\n"


def test_binding_after_mlx_was_imported_is_too_late_but_no_error(tmp_path: Path) -> None:
    assert run(PRODUCT + "bind()\n", tmp_path) == "slow\n"


def test_runners_that_start_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from exo.runner.engines.mlx.blas import bind_fast_blas; "
        "print(bind_fast_blas(pathlib.Path(sys.argv[1])))"
    )
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in started] == ["fast\n"] * 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_leaves_the_slow_one(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run("bind()\n" + PRODUCT, blocked) == "slow\n"


def test_an_engine_tells_of_the_slow_one_in_one_line_with_the_reason(tmp_path: Path) -> None:
    program = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.threads import ThreadShare
engine = MlxEngine(pathlib.Path("/dev/null"), ThreadShare())
for _ in range(2):
    engine.listen("127.0.0.1")
"""
    (line,) = run(program, tmp_path).splitlines()
    assert line.startswith("matrix products on this CPU will be slow: ")
    assert "/dev/null" in line
