"""The process that talks to the Hugging Face hub, so that a download can be ended at any moment, whatever it waits for.

Files come by the hub client's own `http_get`, not by `snapshot_download`: that one, from version 2 on, begins a file
anew in each process, and a file may have 5 GB.

`python -m exo.models.hub_child list ENDPOINT REPOSITORY REVISION OUTPUT` writes {"id", "sha", "license", "files":
{name: bytes}}; `.. fetch ENDPOINT REPOSITORY SHA FOLDER NAME..` fetches, resuming what is there; `.. search ENDPOINT
QUERY LIMIT OUTPUT` writes {"models": [..]}, those that most people fetch first. ENDPOINT may be empty. One line on the
output says why it failed, and the exit code of which kind that is.
"""

import hashlib
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from huggingface_hub import (
    HfApi,
    ModelInfo,
    get_hf_file_metadata,  # pyright: ignore[reportUnknownVariableType]  its `dict` is bare
    hf_hub_url,
)
from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.file_download import http_get  # pyright: ignore[reportUnknownVariableType]  its `tqdm` is bare
from huggingface_hub.utils import (
    build_hf_headers,  # pyright: ignore[reportUnknownVariableType]  its `dict` is bare
    disable_progress_bars,
    get_session,
    hf_raise_for_status,
)

from exo.models.hub_exit import MISSING, REFUSED, UNREACHABLE

LISTING_SECONDS = 20.0
PARALLEL_FILES = 4
NETWORK = frozenset({"TransportError", "ConnectionError"})
"""Names of errors of the network: of which library they are depends on the version of the hub's client."""
PART = ".part"
LICENSE = "license:"
"""Before a license's name among the tags."""
BLOCK_BYTES = 1 << 20

SHA256 = re.compile(r"[0-9a-f]{64}")
"""The ETag of a large file is its sha256; a small one's is git's own hash, which covers more than the content."""


RUNS = ("safetensors", "text-generation")
"""What the hub must say of a model that a search shows."""


def _list(endpoint: str, repository: str, revision: str, output: str) -> None:
    api = HfApi(endpoint=endpoint or None)
    info = api.model_info(repository, revision=revision, files_metadata=True, timeout=LISTING_SECONDS)
    files = {file.rfilename: file.size or 0 for file in info.siblings or []}
    license_name = next((tag.removeprefix(LICENSE) for tag in info.tags or [] if tag.startswith(LICENSE)), "")
    listing = {"id": info.id, "sha": info.sha or revision, "license": license_name, "files": files}
    Path(output).write_text(json.dumps(listing), encoding="utf-8")


def _search(endpoint: str, query: str, limit: str, output: str) -> None:
    """What `HfApi.list_models` asks, once: that tries a hub which is away for half a minute, while somebody waits."""
    address = f"{HfApi(endpoint=endpoint or None).endpoint}/api/models"
    asked: dict[str, Any] = {"search": query, "filter": RUNS, "sort": "downloads", "limit": int(limit)}
    response = get_session().get(address, params=asked, headers=build_hf_headers(), timeout=LISTING_SECONDS)
    hf_raise_for_status(response)
    found = [ModelInfo(**{"siblings": None, **one}) for one in response.json()[: int(limit)]]
    models = [
        {
            "id": one.id,
            "downloads": one.downloads or 0,
            "likes": one.likes or 0,
            "last_modified": one.last_modified.isoformat() if one.last_modified else None,
            "tags": one.tags or [],
        }
        for one in found
    ]
    Path(output).write_text(json.dumps({"models": models}), encoding="utf-8")


def _fetch(endpoint: str, repository: str, sha: str, folder: str, *names: str) -> None:
    disable_progress_bars()
    with ThreadPoolExecutor(PARALLEL_FILES) as pool:
        for done in [pool.submit(_fetch_file, endpoint, repository, sha, Path(folder), name) for name in names]:
            done.result()


def _fetch_file(endpoint: str, repository: str, sha: str, folder: Path, name: str) -> None:
    """One file, from where the last try ended; `NAME.ETAG.part` until it is whole and has the right content."""
    target = folder / name
    if target.exists():
        return
    url = hf_hub_url(repository, name, revision=sha, endpoint=endpoint or None)
    about = get_hf_file_metadata(url)
    part = folder / f"{name}.{about.etag}{PART}"
    part.parent.mkdir(exist_ok=True)
    part.touch()
    with part.open("r+b") as file:
        there = file.seek(0, os.SEEK_END)
        if about.size is not None and there > about.size:
            there = file.seek(0)
            file.truncate()
        http_get(url, file, resume_size=there, headers=build_hf_headers(), expected_size=about.size)
    if about.etag and SHA256.fullmatch(about.etag) and _sha256(part) != about.etag:
        part.unlink()
        raise OSError(f"{name} came with other content than the hub announces")
    part.rename(target)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _reason(error: Exception, repository: str) -> str:
    """In one line, with what to do."""
    if isinstance(error, GatedRepoError):
        return f"{repository} asks for a licence: accept it on the hub, then set HF_TOKEN to a token of yours"
    if isinstance(error, RepositoryNotFoundError):
        return f"{repository} is not on the hub, or is private: check its name, or set HF_TOKEN to a token of yours"
    if isinstance(error, RevisionNotFoundError):
        return f"{repository} has no such revision"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set: unset it to reach the hub"
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
    if _is_away(error):
        return f"the hub cannot be reached ({said}); where there is no network, EXO_OFFLINE=1 keeps exo from trying"
    return f"the hub gave no answer that is of use ({said})"


def _exit_code(error: Exception) -> int:
    if isinstance(error, RepositoryNotFoundError | RevisionNotFoundError) and not isinstance(error, GatedRepoError):
        return MISSING
    return UNREACHABLE if isinstance(error, OfflineModeIsEnabled) or _is_away(error) else REFUSED


def _is_away(error: Exception) -> bool:
    return any(kind.__name__ in NETWORK for kind in type(error).__mro__)


def main(arguments: list[str]) -> int:
    """0, or after one line that says why not the kind of that."""
    command, endpoint, subject, *rest = arguments
    try:
        {"list": _list, "search": _search, "fetch": _fetch}[command](endpoint, subject, *rest)
    except Exception as error:  # the top of this process: whatever it is, the parent shows the line
        print(_reason(error, subject))
        return _exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
