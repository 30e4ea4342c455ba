"""Today's placement decides every placement of a recorded history as it was decided: how a change to it shows."""

import asyncio
import json
import tempfile
from pathlib import Path

from cluster_histories import CARDS, NODES, Step, histories, run
from hypothesis import given
from typer.testing import CliRunner

from exo.cli.log.app import app
from exo.domain.fold import fold
from exo.domain.messages.events import GenerationFinished, InstancePlaced, Recorded
from exo.domain.state import State
from exo.domain.what_if import Reconsidered, is_refusal, reconsider
from exo.log.store import LogStore


def reconsidered(log: list[Recorded]) -> list[Reconsidered]:
    state, found = State(), list[Reconsidered]()
    for recorded in log:
        one = reconsider(state, recorded)
        if one is not None:
            found.append(one)
        state = fold(state, recorded)
    return found


@given(histories)
def test_no_placement_of_the_past_would_be_another_today(history: list[Step]) -> None:
    log = run(history).log
    found = reconsidered(log)
    for one in found:
        assert one.now == one.then
    told, state = list[int](), State()
    for recorded in log:
        event = recorded.entry.event
        refused = isinstance(event, GenerationFinished) and is_refusal(state, event)
        if isinstance(event, InstancePlaced) or refused:
            told.append(recorded.position)
        state = fold(state, recorded)
    assert [one.position for one in found] == told


PLACED: list[Step] = [(2, 0, 1), (2, 1, 2), (2, 2, 3), (5, 0, 0), (7, 0, 0), (7, 1, 1), (5, 2, 2)]
"""Three nodes join, and what is asked for is placed."""
REFUSED: list[Step] = [(2, 0, 1), (7, 1, 2), (7, 2, 2)]
"""A node with 8 GB, and two requests for a model of 40."""


def elsewhere(recorded: Recorded) -> Recorded:
    """As if it had been placed on another node."""
    event = recorded.entry.event
    if not isinstance(event, InstancePlaced):
        return recorded
    (shard,) = event.instance.shards
    other = next(node_id for node_id in NODES if node_id != shard.node_id)
    instance = event.instance.model_copy(update={"shards": (shard.model_copy(update={"node_id": other}),)})
    entry = recorded.entry.model_copy(update={"event": event.model_copy(update={"instance": instance})})
    return recorded.model_copy(update={"entry": entry})


def test_a_placement_that_would_be_another_is_told() -> None:
    first = next(one for one in run(PLACED).log if isinstance(one.entry.event, InstancePlaced))
    log = [elsewhere(one) if one == first else one for one in run(PLACED).log[: first.position]]
    (found,) = reconsidered(log)
    assert found.differs
    assert found.position == first.position
    assert found.then.node_ids != found.now.node_ids
    assert found.now.reason == first.entry.event.reason  # pyright: ignore  it is an InstancePlaced


def test_a_model_that_would_fit_nowhere_is_told() -> None:
    log = run(PLACED).log
    first = next(one for one in log if isinstance(one.entry.event, InstancePlaced))
    assert isinstance(first.entry.event, InstancePlaced)
    card = first.entry.event.instance.card.model_copy(update={"weight_bytes": 10**15})
    instance = first.entry.event.instance.model_copy(update={"card": card})
    event = first.entry.event.model_copy(update={"instance": instance})
    large = first.model_copy(update={"entry": first.entry.model_copy(update={"event": event})})
    (found,) = reconsidered([*log[: first.position - 1], large])
    assert found.now.node_ids == ()
    assert "more than any node can give" in found.now.reason


def test_a_refusal_that_would_be_none_is_told() -> None:
    log = run(REFUSED).log
    refusals = [one for one in reconsidered(log) if not one.then.node_ids]
    assert refusals
    assert not any(one.differs for one in refusals)
    assert {one.model_id for one in refusals} == {CARDS[2].model_id}


def shown(log: list[Recorded], *arguments: str) -> str:
    """What the command prints about a log."""

    async def write(home: Path) -> None:
        store = await LogStore.open(home / "log" / "exo.sqlite3")
        await store.append(log)
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder)))
        command = ["replay", "--with-placement", *arguments, "--home", folder]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout


def test_the_command_says_how_many_would_be_decided_otherwise() -> None:
    log = run(PLACED).log
    placed = [one for one in log if isinstance(one.entry.event, InstancePlaced)]
    assert shown(log) == f"{len(placed)} placements, none would be decided otherwise\n"
    changed = [*log[: placed[0].position - 1], elsewhere(placed[0])]
    lines = shown(changed).splitlines()
    assert lines[0].startswith(f"position {placed[0].position}  ")
    assert [line.split()[0] for line in lines[1:]] == ["then", "now", "1"]
    assert "was chosen" in lines[2]
    assert lines[-1] == "1 placements, 1 would be decided otherwise"
    told, totals = (json.loads(line) for line in shown(changed, "--json").splitlines())
    assert told["then"]["node_ids"] != told["now"]["node_ids"]
    assert totals == {"placements": 1, "different": 1}
    assert shown(changed, "--to", str(placed[0].position - 1)).startswith("0 placements")
    assert shown(log, "--from", str(len(log) + 1)).startswith("0 placements")


def test_a_refusal_of_several_requests_is_told_once() -> None:
    log = run(REFUSED).log
    joined, queued, ended, queued_too, ended_too = log
    assert [one.entry.event.type for one in log[1:]] == ["GenerationQueued", "GenerationFinished"] * 2
    entries = [joined.entry, queued.entry, queued_too.entry]
    entries += [one.entry.model_copy(update={"recorded_at": ended_too.entry.recorded_at}) for one in (ended, ended_too)]
    together = [Recorded(position=position, entry=entry) for position, entry in enumerate(entries, start=1)]
    assert len(reconsidered(together)) == 2
    assert shown(together).startswith("1 placements")
    assert shown(log).startswith("2 placements")


def test_from_alone_is_refused() -> None:
    result = CliRunner().invoke(app, ["replay", "--from", "3"])
    assert result.exit_code == 2
    assert "--with-placement" in result.stderr
