"""Files that belong to exo and are not code: server configurations and migrations."""

from pathlib import Path

from exo.errors import Fatal

_PACKAGE = Path(__file__).parent


def resource_dir(name: str) -> Path:
    """The folder `nats` or `migrations`: inside an installed package, else at the top of the checkout."""
    for folder in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise Fatal(f"exo's folder '{name}' is missing: install exo again")
