"""Models from the Hugging Face hub: only the files that an engine loads, resumed where the last try ended."""

import fnmatch
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exo.domain.model_card import HubSource
from exo.errors import Rejected
from exo.models.child import Ended, run_child
from exo.models.disk import FreeBytes, free_bytes, require_space
from exo.models.folder import INDEX_FILE, what_is_missing
from exo.models.hub_exit import CODES, REFUSED_CODE
from exo.models.json_file import read_object
from exo.models.progress import IsCancelled, OnProgress, Progress, ignore_progress, never
from exo.models.vector_form import POOLING_FILE
from exo.models.wheel import folder_bytes
from exo.process import module_command

SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
WEIGHTS = "*.safetensors"
PREFERRED_WEIGHTS = "model*.safetensors"
"""Some repositories hold the same weights a second time, as `consolidated.safetensors`."""

REVISION_FILE = ".revision"
"""In a folder that is being fetched: the commit that its files are of."""

LISTING_STALL_SECONDS = 60.0
FETCH_STALL_SECONDS = 180.0
"""Without one more byte on disk."""
CHILD = module_command("exo.models.hub_child")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a revision of a repository holds: file -> bytes."""

    repository: str
    """Its name as the hub writes it."""
    sha: str
    files: Mapping[str, int]
    license: str = ""

    @property
    def total_bytes(self) -> int:
        """Of the files that are needed."""
        return sum(self.files[name] for name in needed_files(self.files))


def needed_files(names: Sequence[str] | Mapping[str, int]) -> list[str]:
    """The files of a repository that an engine loads: no other format, and of those in folders (`original/`, `metal/`)
    only the one that says how texts become vectors."""
    top = sorted(name for name in names if "/" not in name and not name.startswith("."))
    weights = fnmatch.filter(top, PREFERRED_WEIGHTS) or fnmatch.filter(top, WEIGHTS)
    small = [name for name in top if any(fnmatch.fnmatch(name, pattern) for pattern in SMALL_FILES)]
    return sorted({*weights, *small, *({POOLING_FILE} & set(names))})


def fetch_listing(
    source: HubSource, scratch: Path, *, endpoint: str | None = None, cancelled: IsCancelled = never
) -> Listing:
    """The repository's files. Raises Rejected, saying why, when the hub cannot be asked or does not have it."""
    scratch.mkdir(parents=True, exist_ok=True)
    output = scratch / "listing.json"
    command = [*CHILD, "list", endpoint or "", source.repository, source.revision, str(output)]
    ended = run_child(command, stall_seconds=LISTING_STALL_SECONDS, cancelled=cancelled, measure=lambda: 0)
    require_success(ended, scratch)
    listing = read_object(output)
    output.unlink()
    files = listing.get("files")
    sizes = {name: size for name, size in files.items() if isinstance(size, int)} if isinstance(files, dict) else {}
    return Listing(str(listing.get("id")), str(listing.get("sha")), sizes, str(listing.get("license") or ""))


def download(
    source: HubSource,
    folder: Path,
    on_progress: OnProgress = ignore_progress,
    *,
    endpoint: str | None = None,
    cancelled: IsCancelled = never,
    free: FreeBytes = free_bytes,
) -> None:
    """Fetches the needed files into `folder`, which keeps what has come for the next try, and checks that it is whole.

    Raises Rejected when the hub refuses, the network fails, the disk is too small or the files are no model; Cancelled.
    """
    listing = fetch_listing(source, folder, endpoint=endpoint, cancelled=cancelled)
    _forget_other_revision(folder, listing.sha)
    names = needed_files(listing.files)
    if not fnmatch.filter(names, WEIGHTS):
        raise Rejected(f"{source.repository} has no safetensors weights: choose another conversion of the model")
    total = listing.total_bytes
    require_space(folder, max(0, total - folder_bytes(folder)), f"downloading {source.repository}", free)

    def measure() -> int:
        done = folder_bytes(folder)
        on_progress(Progress("fetching", min(done, total), total))
        return done

    fetch_files(source, listing.sha, names, folder, endpoint=endpoint, cancelled=cancelled, measure=measure)
    _check(source, folder, {name: listing.files[name] for name in names})
    on_progress(Progress("verifying", total, total))
    (folder / REVISION_FILE).unlink()


def fetch_files(
    source: HubSource,
    sha: str,
    names: Sequence[str],
    folder: Path,
    *,
    endpoint: str | None = None,
    cancelled: IsCancelled = never,
    measure: Callable[[], int] | None = None,
) -> None:
    """Fetches some files of a commit into `folder`, going on where the last try ended. `measure`, called five times a
    second, says how many bytes there are. Raises Rejected where the hub refuses or the network fails; Cancelled."""
    command = [*CHILD, "fetch", endpoint or "", source.repository, sha, str(folder), *names]
    measured = measure or (lambda: folder_bytes(folder))
    ended = run_child(command, stall_seconds=FETCH_STALL_SECONDS, cancelled=cancelled, measure=measured)
    require_success(ended, folder)


def _forget_other_revision(folder: Path, sha: str) -> None:
    """What came of another revision would mix with this one's files."""
    mark = folder / REVISION_FILE
    if not mark.exists() or mark.read_text(encoding="utf-8") != sha:
        shutil.rmtree(folder)
        folder.mkdir()
        mark.write_text(sha, encoding="utf-8")


def require_success(ended: Ended, folder: Path) -> None:
    """Raises Rejected with the child's last line, and that what is in `folder` stays, where there is anything."""
    if ended.code == 0:
        return
    lines = ended.output.splitlines() or ["no reason given"]
    why = "nothing came from the hub for too long" if ended.code is None else lines[-1]
    came = folder_bytes(folder)
    kept = f"; the {came / 1e6:,.1f} MB that have come are kept: try again" if came else ""
    raise Rejected(why + kept, code=CODES.get(ended.code, REFUSED_CODE))


def _check(source: HubSource, folder: Path, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size and found != size:
            raise Rejected(f"{folder / name} has {found:,} bytes of {size:,}: try again")
    reason = what_is_missing(folder)
    if reason is not None:
        hint = " (its index names files that it lacks)" if INDEX_FILE in sizes else ""
        raise Rejected(f"{source.repository} is no complete model{hint}: {reason}")
