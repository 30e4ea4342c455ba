"""Whether the files of a model folder fit together, found out before an engine reads them.

Engines say little when they do not: that a parameter is missing, or that bytes ran out. Here the file is named.
"""

import re
from pathlib import Path

from exo.errors import Fatal, Rejected, one_line
from exo.models.folder import CONFIG_FILE, INDEX_FILE, weight_files, what_is_missing
from exo.models.json_file import read_object
from exo.models.safetensors_file import read_header


def check_folder(folder: Path) -> None:
    """Reads the configuration, the index and the header of every weight file.

    Raises Fatal, naming the file and what to do, for the first that is missing, malformed, cut, or that lacks a tensor
    which the index says it has.
    """
    try:
        _check(folder)
    except Rejected as error:
        raise Fatal(error.reason) from error


def blame(folder: Path, error: Exception) -> str:
    """One line that says what is wrong with a folder that passed `check_folder` when an engine cannot build its model:
    the weight file, where the error names a tensor of one, else the configuration."""
    text = one_line(error)
    names = set(re.findall(r"[\w.]*\w", text))
    for file in weight_files(folder):
        if any(entry.name in names for entry in read_header(file).tensors):
            return f"{file} holds other tensors than {CONFIG_FILE} describes ({text}): fetch the model again"
    return (
        f"the model that {folder / CONFIG_FILE} describes cannot be built of the weights beside it ({text}): fetch it "
        "again, or a model of another family"
    )


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise Rejected(f"{folder} does not exist: fetch the model again")
    read_object(folder / CONFIG_FILE)
    if (missing := what_is_missing(folder)) is not None:
        raise Rejected(missing)
    if (folder / INDEX_FILE).is_file():
        _check_index(folder)


def _check_index(folder: Path) -> None:
    """`what_is_missing` has read the index, and found its files."""
    held = {file.name: {entry.name for entry in read_header(file).tensors} for file in weight_files(folder)}
    weight_map = read_object(folder / INDEX_FILE)["weight_map"]
    for tensor, name in weight_map.items() if isinstance(weight_map, dict) else ():
        if tensor not in held[str(name)]:
            raise Rejected(
                f"{folder / str(name)} lacks the tensor {tensor!r}, which {INDEX_FILE} says it has: fetch both again"
            )
