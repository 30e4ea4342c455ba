"""Usage from the log: on a real file, and over HTTP from a real node."""

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from log_events import BEGIN, CARD, history
from typer.testing import CliRunner

from exo.cli.app import app
from exo.domain.ids import ApiId, ModelId, TaskId
from exo.domain.messages.events import Entry, Event, GenerationFinished, GenerationQueued, Recorded
from exo.domain.sampling import FinishReason, Timings
from exo.domain.sampling import Usage as Tokens
from exo.errors import Fatal
from exo.log.explain.usage import Usage, read_usage, total
from exo.log.store import LogStore
from tests.stack import Stack, wait_until

DAY = 86400.0
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def generation(
    name: str,
    ended_at: float | None,
    *,
    key: str = "anna",
    model: str = "maker/model",
    finish: FinishReason = "stop",
    tokens: int = 10,
) -> list[tuple[float, Event]]:
    """The events of a generation that was queued an hour before its end."""
    task_id = TaskId(name)
    queued = GenerationQueued(
        task_id=task_id, model_id=ModelId(model), estimated_tokens=1, key=key, reply_to=ApiId("api")
    )
    if ended_at is None:
        return [(NOON, queued)]
    used = Tokens(prompt_tokens=tokens, completion_tokens=2 * tokens, cached_tokens=1)
    finished = GenerationFinished(
        task_id=task_id, finish_reason=finish, usage=used, timings=Timings(wait=9.0, prefill=0.5, decode=1.25)
    )
    return [(ended_at - 3600, queued), (ended_at, finished)]


def log_of(home: Path, *generations: list[tuple[float, Event]]) -> Path:
    path = home / "log" / "exo.sqlite3"
    timed = sorted((one for events in generations for one in events), key=lambda one: one[0])
    recorded = [
        Recorded(position=position, entry=Entry(recorded_at=at, cause_id=None, source="test", event=event))
        for position, (at, event) in enumerate(timed, start=1)
    ]

    async def work() -> None:
        store = await LogStore.open(path)
        await store.append(recorded)
        await store.close()

    asyncio.run(work())
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    log_of(
        tmp_path,
        generation("a", NOON),
        generation("b", NOON + 1, key="otto", finish="length"),
        generation("c", NOON + DAY, finish="error", tokens=0),
        generation("d", NOON + DAY, model="maker/other", finish="cancelled", tokens=7),
        generation("running", None),
    )
    return tmp_path


def run(home: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["usage", *arguments, "--home", str(home)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_usage_is_summed_by_model_key_and_day(home: Path) -> None:
    path = home / "log" / "exo.sqlite3"

    def by(what: str) -> list[Usage]:
        return asyncio.run(read_usage(path, what, utc=True))  # pyright: ignore[reportArgumentType]  a Literal

    assert by("model") == [
        Usage("maker/model", 3, 1, 20, 40, 3, 1.5, 3.75),
        Usage("maker/other", 1, 0, 7, 14, 1, 0.5, 1.25),
    ]
    assert by("key") == [Usage("anna", 3, 1, 17, 34, 3, 1.5, 3.75), Usage("otto", 1, 0, 10, 20, 1, 0.5, 1.25)]
    assert by("day") == [
        Usage("2026-11-29", 2, 0, 20, 40, 2, 1.0, 2.5),
        Usage("2026-11-30", 2, 1, 7, 14, 2, 1.0, 2.5),
    ]
    for what in ("model", "key", "day"):
        assert total(by(what)) == Usage("", 4, 1, 27, 54, 4, 2.0, 5.0)


def test_nothing_used_is_nothing(tmp_path: Path) -> None:
    path = log_of(tmp_path, generation("running", None))
    assert asyncio.run(read_usage(path, "key")) == []
    assert total([]) == Usage("", 0, 0, 0, 0, 0, 0.0, 0.0)


def test_the_figures_of_a_nonsensical_report_do_no_harm(tmp_path: Path) -> None:
    path = log_of(tmp_path, *(generation(str(number), NOON, tokens=2**62) for number in range(8)))
    (found,) = asyncio.run(read_usage(path, "model"))
    assert (found.requests, found.prompt_tokens) == (8, 2**63 - 1)


def test_the_command_prints_a_table_or_json(home: Path) -> None:
    shown = run(home, "--by", "key")
    assert [line.split() for line in shown.splitlines() if "otto" in line or "total" in line] == [
        ["otto", "1", "0", "10", "1", "20", "0.5", "s", "1.2", "s"],
        ["total", "4", "1", "27", "4", "54", "2.0", "s", "5.0", "s"],
    ]
    found = json.loads(run(home, "--by", "model", "--since", "2026-11-30T00:00+00:00", "--json"))
    assert [(one["model"], one["requests"]) for one in found["model"]] == [("maker/model", 1), ("maker/other", 1)]
    assert found["total"] == {
        "requests": 2,
        "failed": 1,
        "prompt_tokens": 7,
        "completion_tokens": 14,
        "cached_tokens": 2,
        "prefill_s": 1.0,
        "decode_s": 2.5,
    }


def test_days_are_local_unless_told_otherwise(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
    time.tzset()
    try:
        local = json.loads(run(home, "--by", "day", "--json"))
        utc = json.loads(run(home, "--by", "day", "--utc", "--json"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [one["day"] for one in local["day"]] == ["2026-11-30", "2026-12-01"]
    assert [one["day"] for one in utc["day"]] == ["2026-11-29", "2026-11-30"]


def test_the_command_says_what_it_expects(home: Path, tmp_path: Path) -> None:
    for arguments in (["--since", "17"], ["--since", "never"], ["--by", "colour"]):
        assert CliRunner().invoke(app, ["usage", *arguments, "--home", str(home)]).exit_code == 2
    with pytest.raises(Fatal, match="there is no event log at"):
        run(tmp_path / "elsewhere")


def test_a_history_of_one_model_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"

    async def work() -> list[Usage]:
        store = await LogStore.open(path)
        await store.append(history(5 + 3 * 50 + 2))
        await store.close()
        return await read_usage(path, "model", since=BEGIN)

    assert asyncio.run(work()) == [Usage(CARD.model_id, 50, 0, 350, 250, 100, 0.0, 12.5)]


def test_over_http_it_is_what_was_answered(client: httpx.Client, shared_stack: Stack) -> None:
    script = json.dumps({"tokens": ["a", "b", "c"]})
    body = {"model": "scripted", "messages": [{"role": "user", "content": script}]}
    used = client.post("/v1/chat/completions", json=body).json()["usage"]
    # A master has it on its disk a moment after the answer.
    wait_until(lambda: client.get("/v1/usage").json()["data"] != [], "the generation in the log", 10)
    answer = client.get("/v1/usage").json()
    (found,) = answer["data"]
    assert (found["model"], found["requests"], found["failed"]) == ("exo/scripted", 1, 0)
    assert (found["prompt_tokens"], found["completion_tokens"]) == (used["prompt_tokens"], used["completion_tokens"])
    assert answer["total"] == {name: value for name, value in found.items() if name != "model"}
    today = datetime.now(UTC).date().isoformat()
    by_day = client.get("/v1/usage", params={"by": "day", "since": today}).json()
    assert (by_day["by"], by_day["since"], by_day["data"][0]["day"]) == ("day", f"{today}T00:00:00+00:00", today)
    assert client.get("/v1/usage", params={"since": "2100-01-01"}).json()["data"] == []
    shown = json.loads(shared_stack.cli("usage", "--by", "key", "--json").stdout)
    assert shown["total"] == answer["total"]


@pytest.mark.parametrize(("query", "param"), [("since=never", "since"), ("by=colour", "by")])
def test_over_http_a_wrong_parameter_is_named(client: httpx.Client, query: str, param: str) -> None:
    answer = client.get(f"/v1/usage?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_api_without_a_log_says_where_to_ask(shared_stack: Stack, tmp_path: Path) -> None:
    lonely = Stack(tmp_path / "home", nats_url=shared_stack.nats_url)
    try:
        lonely.start(["api"])
        with httpx.Client(base_url=lonely.url, timeout=30) as client:
            wait_until(lonely.is_up, "the API")
            answer = client.get("/v1/usage")
    finally:
        lonely.stop()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "there is no event log at" in answer.json()["error"]["message"]
    assert "ask another" in answer.json()["error"]["message"]
