"""The process that talks to the Hugging Face hub, so that a download can be ended at any moment, whatever it waits for.

`python -m exo.models.hub_child list ENDPOINT REPOSITORY REVISION OUTPUT` writes {"sha": .., "files": {name: bytes}};
`python -m exo.models.hub_child fetch ENDPOINT REPOSITORY SHA FOLDER NAME..` fetches, resuming what is there.
ENDPOINT may be empty. One line on the output and exit code 1 say why it failed.
"""

import json
import sys
from pathlib import Path

from huggingface_hub import (
    HfApi,
    snapshot_download,  # pyright: ignore[reportUnknownVariableType]  its `dict` is bare
)
from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError, RevisionNotFoundError

LISTING_SECONDS = 20.0
PARALLEL_FILES = 4


def _list(endpoint: str, repository: str, revision: str, output: str) -> None:
    api = HfApi(endpoint=endpoint or None)
    info = api.model_info(repository, revision=revision, files_metadata=True, timeout=LISTING_SECONDS)
    files = {file.rfilename: file.size or 0 for file in info.siblings or []}
    Path(output).write_text(json.dumps({"sha": info.sha or revision, "files": files}), encoding="utf-8")


def _fetch(endpoint: str, repository: str, sha: str, folder: str, *names: str) -> None:
    snapshot_download(
        repository,
        revision=sha,
        local_dir=folder,
        allow_patterns=list(names),
        max_workers=PARALLEL_FILES,
        endpoint=endpoint or None,
    )


def _reason(error: Exception, repository: str) -> str:
    if isinstance(error, GatedRepoError):
        return f"{repository} asks for a licence: accept it on the hub, then set HF_TOKEN to a token of yours"
    if isinstance(error, RepositoryNotFoundError):
        return f"{repository} is not on the hub, or is private: check its name, or set HF_TOKEN to a token of yours"
    if isinstance(error, RevisionNotFoundError):
        return f"{repository} has no such revision"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set: unset it to download"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def main(arguments: list[str]) -> int:
    """0, or 1 after one line that says why not."""
    command, endpoint, repository, *rest = arguments
    try:
        if command == "list":
            _list(endpoint, repository, *rest)
        else:
            _fetch(endpoint, repository, *rest)
    except Exception as error:  # the top of this process: whatever it is, the parent shows the line
        print(_reason(error, repository))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
