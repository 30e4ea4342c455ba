"""The project's shape: who imports whom, how large things are, and that every setting is documented."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.config import Settings

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "exo").rglob("*.py"), *(ROOT / "migrations").rglob("*.py")])
FILE_LINES_MOST = 500
FUNCTION_LINES_MOST = 60
ENVIRONMENT = {
    "exo/config.py": "the settings",
    "exo/honcho.py": "honcho tells there that it started a process",
    "exo/runner/tokenizer.py": "quiets a library before it is imported",
    "exo/runner/output/harmony/vocabulary.py": "a package reads from there where its vocabulary is",
    "exo/runner/engines/mlx/blas.py": "BLAS takes its number of threads from there while it is loaded",
    "exo/runner/engines/vllm/environment.py": "vLLM and torch read it while they are imported",
    "exo/node/visible_gpus.py": "CUDA is told there which GPUs to show",
    "exo/runner/engines/mlx/group.py": "mlx.distributed takes rank and addresses from there",
}
"""The only files that may touch the environment, and why."""


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), file)


def imported(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    modules: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(file)} imports relatively"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return modules


def files_that_import(package: str) -> set[str]:
    return {
        name(file)
        for file in SOURCES
        if any(module == package or module.startswith(f"{package}.") for module in imported(file))
    }


def test_the_contracts_of_who_imports_whom_are_kept() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    result = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("nats", ("exo/bus/",)),
        ("sqlalchemy", ("exo/log/", "migrations/")),
        ("aiosqlite", ("exo/log/",)),
        ("alembic", ("exo/log/", "migrations/")),
        ("mlx", ("exo/runner/engines/mlx/",)),
        ("mlx_lm", ("exo/runner/engines/mlx/",)),
        ("litestar", ("exo/api/",)),
        ("prometheus_client", ("exo/api/",)),
        ("llguidance", ("exo/runner/structured/",)),
        ("typer", ("exo/cli/",)),
    ],
)
def test_one_part_alone_imports_a_library(package: str, homes: tuple[str, ...]) -> None:
    assert [file for file in files_that_import(package) if not file.startswith(homes)] == []


@pytest.mark.parametrize("module", ["asyncio", "time", "datetime", "random", "secrets", "uuid", "os", "sys", "pathlib"])
def test_the_pure_core_knows_no_clock_no_chance_and_no_system(module: str) -> None:
    assert [file for file in files_that_import(module) if file.startswith("exo/domain/")] == []


def environment_touches(file: Path) -> Iterator[int]:
    """The lines where a file reads or sets an environment variable."""
    for node in ast.walk(tree(file)):
        by_attribute = isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"}
        by_name = isinstance(node, ast.ImportFrom) and any(
            alias.name in {"environ", "environb", "getenv", "putenv"} for alias in node.names
        )
        if by_attribute or by_name:
            yield getattr(node, "lineno", 0)


def test_the_settings_alone_read_the_environment() -> None:
    touching = {name(file): list(environment_touches(file)) for file in SOURCES}
    assert {file: lines for file, lines in touching.items() if lines and file not in ENVIRONMENT} == {}


def test_no_file_is_too_long() -> None:
    lengths = {name(file): len(file.read_text().splitlines()) for file in SOURCES}
    assert {file: length for file, length in lengths.items() if length > FILE_LINES_MOST} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{name(file)}:{node.name}": node.end_lineno - node.lineno + 1
        for file in SOURCES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {function: length for function, length in long.items() if length > FUNCTION_LINES_MOST} == {}


def test_every_module_and_every_public_function_says_what_it_is() -> None:
    silent: list[str] = []
    for file in SOURCES:
        module = tree(file)
        if ast.get_docstring(module) is None:
            silent.append(name(file))
        silent += [
            f"{name(file)}:{node.name}"
            for node in module.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and ast.get_docstring(node) is None
        ]
    assert [entry for entry in silent if not entry.startswith("migrations/")] == []


def test_no_code_lies_where_it_would_hide_the_nats_client() -> None:
    assert list((ROOT / "nats").rglob("*.py")) == []


@pytest.mark.parametrize("setting", Settings.model_fields)
def test_every_setting_is_documented(setting: str) -> None:
    documented = (ROOT / "docs" / "settings.md").read_text()
    assert f"EXO_{setting.upper()}`" in documented


def test_no_setting_is_documented_that_is_not_there() -> None:
    documented = set(re.findall(r"EXO_([A-Z_]+)", (ROOT / "docs" / "settings.md").read_text()))
    assert documented - {setting.upper() for setting in Settings.model_fields} == set()
