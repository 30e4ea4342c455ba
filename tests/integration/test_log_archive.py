"""A log exported to a file and imported again is the same log; a file that is not whole is refused, and says where."""

import asyncio
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from log_events import history
from typer.testing import CliRunner

from exo.cli.log.app import app
from exo.domain.messages.events import Recorded
from exo.errors import Fatal, Rejected
from exo.log.moving.archive import BadArchive, Footer
from exo.log.moving.exporting import export_log
from exo.log.moving.importing import import_log
from exo.log.replay import load_state, state_digest
from exo.log.store import LogStore
from exo.log.verify import verify
from exo.models.lock import locked_if_free

LENGTH = 2500
"""Two pages and a half."""


def log_of(home: Path) -> Path:
    return home / "log" / "exo.sqlite3"


def append(home: Path, events: list[Recorded]) -> None:
    async def work() -> None:
        store = await LogStore.open(log_of(home))
        await store.append(events)
        await store.close()

    asyncio.run(work())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose log is only read."""
    home = tmp_path_factory.mktemp("home")
    append(home, history(LENGTH))
    return home


@pytest.fixture(scope="module")
def lines(home: Path) -> list[bytes]:
    """Its log, exported."""
    return exported(home).splitlines(keepends=True)


def exported(home: Path) -> bytes:
    async def work() -> bytes:
        store = await LogStore.open(log_of(home), read_only=True)
        target = io.BytesIO()
        await export_log(store, target)
        await store.close()
        return target.getvalue()

    return asyncio.run(work())


def run(home: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--home", str(home)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def tables(home: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(log_of(home))) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in ("events", "inbox", "generations")
        }


def digest_and_problems(home: Path) -> tuple[str, int]:
    async def work() -> tuple[str, int]:
        store = await LogStore.open(log_of(home), read_only=True)
        found = await verify(store)
        state = await load_state(store)
        await store.close()
        assert state_digest(state) == found.digest
        return found.digest, len(found.problems)

    return asyncio.run(work())


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.zst"])
def test_an_imported_log_is_the_same_row_by_row(home: Path, tmp_path: Path, name: str) -> None:
    file, other = tmp_path / name, tmp_path / "other"
    run(home, "export", str(file))
    assert (file.read_bytes()[:4] == b"\x28\xb5\x2f\xfd") == name.endswith(".zst")
    assert f"up to position {LENGTH}" in run(other, "import", str(file))
    assert [one.name for one in sorted((other / "log").iterdir())] == ["exo.sqlite3"]
    assert tables(other) == tables(home)
    assert digest_and_problems(other) == (digest_and_problems(home)[0], 0)


def test_a_node_goes_on_with_an_imported_log(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"))
    run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    append(tmp_path, history(30, after=LENGTH))
    assert digest_and_problems(tmp_path)[1] == 0


def test_the_file_says_what_it_holds(lines: list[bytes]) -> None:
    header, first, footer = (json.loads(lines[number]) for number in (0, 1, -1))
    assert (header["format"], header["count"], header["first"]) == ("exo-log", LENGTH, 1)
    assert (first["position"], first["type"]) == (1, "MasterElected")
    assert json.loads(first["body"])["epoch"] == 1
    assert (footer["footer"]["count"], footer["footer"]["chain"]) == (LENGTH, json.loads(lines[-2])["chain"])


def test_a_part_of_a_log_is_exported_and_never_imported(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "part"
    run(home, "export", str(file), "--from", "11", "--to", "20")
    found = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [one["position"] for one in found[1:-1]] == list(range(11, 21))
    assert found[0]["chain_before"] == tables(home)["events"][9][-1]
    with pytest.raises(Rejected, match="begins at position 11; only a log from its first event on can be imported"):
        run(tmp_path, "import", str(file))
    with pytest.raises(Rejected, match="nothing lies between"):
        run(home, "export", str(file), "--from", "20", "--to", "11")


def test_the_beginning_of_a_log_can_be_imported(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"), "--to", "1000")
    run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    assert tables(tmp_path)["events"] == tables(home)["events"][:1000]
    assert digest_and_problems(tmp_path)[1] == 0


def test_an_empty_log_is_moved_too(tmp_path: Path) -> None:
    append(tmp_path / "empty", [])
    run(tmp_path / "empty", "export", str(tmp_path / "log.jsonl"))
    run(tmp_path / "other", "import", str(tmp_path / "log.jsonl"))
    assert tables(tmp_path / "other")["events"] == []


def test_a_log_goes_through_a_pipe(home: Path, tmp_path: Path) -> None:
    call = [sys.executable, "-c", "from exo.cli.log.app import app; app()"]
    with (
        subprocess.Popen(
            [*call, "export", "-", "--home", str(home)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as source,
        subprocess.Popen([*call, "import", "-", "--home", str(tmp_path)], stdin=source.stdout) as target,
    ):
        assert target.wait(timeout=60) == source.wait(timeout=60) == 0
    assert tables(tmp_path) == tables(home)


def changed(position: int, /, **columns: object) -> Callable[[list[bytes]], list[bytes]]:
    """The line of an event with other values in some columns."""

    def change(lines: list[bytes]) -> list[bytes]:
        row = json.loads(lines[position]) | columns
        return [*lines[:position], json.dumps(row).encode() + b"\n", *lines[position + 1 :]]

    return change


def footer_with(**values: object) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        footer = json.loads(lines[-1])["footer"] | values
        return [*lines[:-1], json.dumps({"footer": footer}, separators=(",", ":")).encode() + b"\n"]

    return change


LAST = LENGTH + 2
"""The number of the footer's line."""


Damage = Callable[[list[bytes]], list[bytes]]
DAMAGES: list[tuple[Damage, str]] = [
    (lambda lines: [], "line 1: the file is empty"),
    (lambda lines: [b"\x00\xff\n"], "line 1: this is no exported log"),
    (lambda lines: lines[1:], "line 1: this is no exported log"),
    (lambda lines: lines[:1], "line 2: the file ends|line 2: the file is empty"),
    (lambda lines: lines[:-1], f"line {LAST}: the file ends after the event at position {LENGTH}, without its"),
    (lambda lines: lines[:1201], "line 1202: the file ends after the event at position 1200, without its footer"),
    (lambda lines: [*lines[:1200], lines[1200][:50]], r"line 1201 \(position 1200\): the file was cut off here"),
    (lambda lines: [*lines[:7], b"{\n", *lines[7:]], r"line 8 \(position 7\): this is no event: Invalid JSON"),
    (lambda lines: [*lines[:7], b"\n", *lines[7:]], r"line 8 \(position 7\): this is no event"),
    (lambda lines: [*lines[:7], b"\xff" * 9 + b"\n", *lines[7:]], r"line 8 \(position 7\): this is no event"),
    (lambda lines: [*lines[:7], *lines[8:]], r"line 8 \(position 7\): here should be the event at position 7"),
    (lambda lines: [*lines[:7], lines[8], lines[7], *lines[9:]], r"line 8 \(position 7\): here should be"),
    (lambda lines: [*lines[:8], lines[7], *lines[8:]], r"line 9 \(position 8\): .* it is the one at 7"),
    (changed(2400, source="someone"), r"line 2401 \(position 2400\): the event was changed, or the one before it"),
    (changed(6, cause_id=None), r"line 7 \(position 6\): the event was changed"),
    (changed(6, recorded_at=1.5), r"line 7 \(position 6\): the event was changed"),
    (changed(6, body="{}"), r"line 7 \(position 6\): the event was changed"),
    (changed(6, chain="0" * 64), r"line 7 \(position 6\): the event was changed"),
    (changed(6, more=1), r"line 7 \(position 6\): this is no event: more: "),
    (changed(6, position="6"), r"line 7 \(position 6\): this is no event: position: "),
    (changed(6, type="GenerationDreamt"), r"line 7 \(position 6\): .*upgrade exo"),
    (changed(6, version=9), r"line 7 \(position 6\): .*upgrade exo"),
    (changed(0, count=7), f"line {LAST}: the footer does not agree"),
    (changed(0, exo="9"), f"line {LAST}: the footer does not agree"),
    (changed(0, format_version=2), "line 1: the file has the format 2: upgrade exo"),
    (footer_with(count=7), f"line {LAST}: the footer does not agree"),
    (footer_with(chain="0" * 64), f"line {LAST}: the footer does not agree"),
    (footer_with(state_digest="0" * 64), f"line {LAST}: the events do not lead to the State"),
    (lambda lines: [*lines, lines[5]], f"line {LAST + 1}: something comes after the footer"),
    (lambda lines: [*lines[:1], lines[-1]], "line 2: the footer does not agree"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGES)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_not_whole_leaves_nothing(
    lines: list[bytes], tmp_path: Path, damage: Damage, text: str, compressed: bool
) -> None:
    content = b"".join(damage(lines))
    file = tmp_path / "file"
    file.write_bytes(zstandard.compress(content) if compressed else content)
    with pytest.raises(Rejected, match=f"{file}, ({text})"):
        run(tmp_path, "import", str(file))
    assert list((tmp_path / "log").glob("*")) == []


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_a_compressed_file_that_was_cut_is_refused(home: Path, tmp_path: Path, keep: float) -> None:
    file = tmp_path / "log.zst"
    run(home, "export", str(file))
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(Rejected, match="line "):
        run(tmp_path, "import", str(file))
    assert list((tmp_path / "log").glob("*")) == []


def test_a_compressed_file_that_was_garbled_is_refused(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.zst"
    run(home, "export", str(file))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)
    with pytest.raises(Rejected, match="line "):
        run(tmp_path, "import", str(file))
    assert list((tmp_path / "log").glob("*")) == []


def test_a_home_with_events_is_left_alone(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"))
    append(tmp_path, history(5))
    before = tables(tmp_path)
    with pytest.raises(Rejected, match="has events already"):
        run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    assert tables(tmp_path) == before


def test_a_home_whose_log_is_empty_takes_one(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"))
    append(tmp_path, [])
    run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    assert tables(tmp_path) == tables(home)


def test_nothing_is_imported_beside_a_running_master(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"))
    with (
        locked_if_free(tmp_path / "master.lock"),
        pytest.raises(Rejected, match=r"a master runs with the home .*: stop the node first"),
    ):
        run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    assert not (tmp_path / "log").exists()


def test_what_an_import_that_was_killed_left_is_no_obstacle(home: Path, tmp_path: Path) -> None:
    run(home, "export", str(tmp_path / "log.jsonl"))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "exo.sqlite3.importing").write_text("half a file")
    (tmp_path / "log" / "exo.sqlite3.importing-wal").write_text("half a file")
    run(tmp_path, "import", str(tmp_path / "log.jsonl"))
    assert tables(tmp_path) == tables(home)
    assert [one.name for one in sorted((tmp_path / "log").iterdir())] == ["exo.sqlite3"]


def test_an_export_that_fails_leaves_the_file_of_before(home: Path, tmp_path: Path) -> None:
    append(tmp_path, history(40))
    with closing(sqlite3.connect(log_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE events SET source = 'x' WHERE position = 30")
    file = tmp_path / "log.jsonl"
    file.write_text("of before")
    with pytest.raises(Fatal, match="the event at position 30 was changed, or the one before it: run `exo log verify`"):
        run(tmp_path, "export", str(file))
    assert file.read_text() == "of before"
    assert not (tmp_path / "log.jsonl.partial").exists()
    with pytest.raises(Rejected, match="No such file or directory"):
        run(home, "export", str(tmp_path / "nowhere" / "file"))
    with pytest.raises(Rejected, match="No such file or directory"):
        run(tmp_path / "new", "import", str(tmp_path / "nowhere"))


def test_a_gap_is_named(tmp_path: Path) -> None:
    append(tmp_path, history(40))
    with closing(sqlite3.connect(log_of(tmp_path))) as connection, connection:
        connection.execute("DELETE FROM events WHERE position = 30")
    with pytest.raises(Fatal, match="the event at position 30 is missing"):
        run(tmp_path, "export", os.devnull)


async def test_a_log_is_exported_while_a_master_appends(tmp_path: Path) -> None:
    master = await LogStore.open(log_of(tmp_path))
    await master.append(history(2000))
    reader = await LogStore.open(log_of(tmp_path), read_only=True)
    going = asyncio.Event()
    target = io.BytesIO()

    async def append_on() -> None:
        while master.position < 4000:
            await master.append(history(20, after=master.position))
            going.set()

    appending = asyncio.create_task(append_on())
    await going.wait()
    position = await reader.refresh()
    footer = await export_log(reader, target)
    assert master.position > position
    await appending
    await reader.close()
    await master.close()
    assert (footer.count, footer.position) == (position, position)
    target.seek(0)
    assert import_log(target, log_of(tmp_path / "other")) == footer
    assert tables(tmp_path / "other")["events"] == tables(tmp_path)["events"][:position]


async def test_progress_is_told(home: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    store = await LogStore.open(log_of(home), read_only=True)
    target = io.BytesIO()
    footer = await export_log(store, target, on_progress=lambda at, end: told.append((at, end)))
    await store.close()
    target.seek(0)
    assert import_log(target, log_of(tmp_path), lambda at, end: told.append((at, end))) == footer
    assert isinstance(footer, Footer)
    assert told == [(1000, LENGTH), (2000, LENGTH), (LENGTH, LENGTH)] * 2


def test_a_bad_archive_names_its_line(lines: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(BadArchive) as caught:
        import_log(io.BytesIO(b"".join([*lines[:9], *lines[10:]])), log_of(tmp_path))
    assert (caught.value.line, caught.value.position) == (10, 9)
