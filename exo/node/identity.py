"""The node's id, which lives in its home folder and so survives restarts, renames and new addresses."""

import os
import uuid
from pathlib import Path

from exo.domain.ids import NodeId, is_token
from exo.errors import Fatal

FILE = "node_id"


def node_id(home: Path) -> NodeId:
    """The id in `home/node_id`, made at the first call; two processes that start together get the same one.

    Raises Fatal, saying what to do, when it holds something else than one id, or the folder cannot be written.
    """
    file = home / FILE
    try:
        if not file.exists():
            _create(file)
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal(f"the home folder {home} cannot be used: {error}; set EXO_HOME to another") from error
    if not is_token(text) or len(text) > 64:
        raise Fatal(f"{file} holds no node id: delete it, and this machine joins as a new node")
    return NodeId(text)


def _create(file: Path) -> None:
    """Written beside it and linked into place, so that nobody sees half an id and the first one wins."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{FILE}.{uuid.uuid4().hex}")
    try:
        fresh.write_text(uuid.uuid4().hex + "\n", encoding="utf-8")
        os.link(fresh, file)
    except FileExistsError:
        pass
    finally:
        fresh.unlink(missing_ok=True)
