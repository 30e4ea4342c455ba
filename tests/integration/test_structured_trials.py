"""Formats are tried in a process of their own: what never ends there harms nobody, and is not begun here."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from exo.domain.constraint import Constraint, Grammar, JsonObject, JsonSchema, Regex
from exo.domain.messages.requests import GenerationRequest, Tool
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.models.output_format import OutputFormat
from exo.runner.structured.trials import Trials
from exo.runner.structured.vocabulary import VocabularySource
from tests.stack import alive

if TYPE_CHECKING:
    from conftest import Until

ENDLESS = r"start: A" "\n" r"A: /(.|\n)*/" + "".join(f" & /([a-z]{{{n}}})*/" for n in (101, 103, 107, 109))
"""Its automaton has more states than there is memory."""
DEEP = JsonSchema(text='{"items":' * 100_000 + "{}" + "}" * 100_000)
PLAIN = OutputFormat()


@pytest.fixture
def source(embedded_model: Path) -> VocabularySource:
    return VocabularySource(tokenizer_json=(embedded_model / "tokenizer.json").read_text(), end_tokens=(2,))


@asynccontextmanager
async def trying(source: VocabularySource, seconds: float = 60.0, at_once: int = 2) -> AsyncGenerator[Trials]:
    trials = Trials(lambda: source, seconds, at_once)
    try:
        yield trials
    finally:
        await trials.close()


def request(constraint: Constraint | None, **more: object) -> GenerationRequest:
    return GenerationRequest.model_validate(
        {"messages": (), "params": SamplingParams(constraint=constraint), **more}, strict=False
    )


def endless(number: int = 0) -> GenerationRequest:
    return request(Grammar(text=f"{ENDLESS}\n// {number}", param="guided_grammar"))


async def refusal(trials: Trials, asked: GenerationRequest) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await trials.check(asked, PLAIN)
    return caught.value


def triers() -> list[psutil.Process]:
    """The processes of this one that try formats, with their forks."""
    return [child for child in psutil.Process().children(recursive=True) if alive(child.pid)]


async def test_what_compiles_passes_and_what_does_not_is_refused_with_the_reason(source: VocabularySource) -> None:
    async with trying(source) as trials:
        await trials.check(request(Regex(pattern="[0-9]{3}")), PLAIN)
        wrong = await refusal(trials, request(JsonSchema(text='{"type": "colour"}', param="guided_json")))
        assert (wrong.code, wrong.param) == ("invalid_response_format", "guided_json")
        assert "colour" in wrong.reason
        wrong_tool = Tool(name="f", parameters='{"type": "string"}')
        wrong = await refusal(trials, request(None, tools=[wrong_tool], tool_choice="required"))
        assert (wrong.code, wrong.param) == ("unsupported_parameter", "tool_choice")
        form = OutputFormat(tools="hermes")
        with pytest.raises(Rejected) as caught:
            await trials.check(request(None, tools=[wrong_tool], tool_choice="required"), form)
        assert caught.value.param == "tools[0].function.parameters"


async def test_what_never_ends_is_ended_and_leaves_room_for_others(source: VocabularySource, until: "Until") -> None:
    async with trying(source, seconds=3) as trials:
        refusals = await asyncio.gather(*(refusal(trials, endless(number)) for number in range(2)))
        for wrong in refusals:
            assert (wrong.code, wrong.param) == ("invalid_response_format", "guided_grammar")
            assert "too complex" in wrong.reason
        await trials.check(request(JsonSchema(text="{}")), PLAIN)
        await until(lambda: len(triers()) == 1, "the end of all that was tried")


async def test_one_whose_turn_does_not_come_may_come_again(source: VocabularySource) -> None:
    async with trying(source, seconds=3, at_once=1) as trials:
        first = asyncio.create_task(refusal(trials, endless(1)))
        second = asyncio.create_task(refusal(trials, endless(2)))
        busy = await second
        assert (busy.code, busy.param) == ("unavailable", "guided_grammar")
        assert "try again" in busy.reason
        assert "too complex" in (await first).reason


async def test_what_breaks_the_compiler_is_refused(source: VocabularySource) -> None:
    async with trying(source) as trials:
        wrong = await refusal(trials, request(DEEP))
        assert wrong.code == "invalid_response_format"
        await trials.check(request(Regex(pattern="a")), PLAIN)


async def test_a_format_is_tried_once_and_json_objects_never(source: VocabularySource) -> None:
    async with trying(source) as trials:
        await trials.check(request(JsonObject()), PLAIN)
        assert triers() == []
        await trials.check(request(Regex(pattern="a+")), PLAIN)
        wrong = await refusal(trials, request(Regex(pattern="(")))
        (process,) = psutil.Process().children()
        process.suspend()
        await trials.check(request(Regex(pattern="a+")), PLAIN)
        assert (await refusal(trials, request(Regex(pattern="(")))).reason == wrong.reason
        process.resume()


async def test_a_client_that_leaves_does_not_make_room_for_more_trials(source: VocabularySource) -> None:
    async with trying(source, seconds=3, at_once=1) as trials:
        first = asyncio.create_task(trials.check(endless(), PLAIN))
        await asyncio.wait([first], timeout=0.1)
        first.cancel()
        await asyncio.wait([first])
        assert (await refusal(trials, endless(2))).code == "unavailable"
        assert "too complex" in (await refusal(trials, endless())).reason


async def test_a_process_that_was_killed_is_started_anew(source: VocabularySource, until: "Until") -> None:
    async with trying(source) as trials:
        waiting = asyncio.create_task(refusal(trials, endless()))
        await until(lambda: len(triers()) == 3, "a trial")
        await trials.close()
        assert (await waiting).code == "unavailable"
        await trials.check(request(Regex(pattern="a")), PLAIN)


HOLDER = """
import asyncio, json, sys
from tests.integration.test_structured_trials import PLAIN, VocabularySource, Trials, endless
source = VocabularySource.model_validate_json(sys.stdin.readline())
asyncio.run(Trials(lambda: source).check(endless(), PLAIN))
"""


async def test_nothing_outlives_a_runner_that_was_killed(source: VocabularySource, until: "Until") -> None:
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, stdin=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert runner.stdin is not None
    runner.stdin.write(source.model_dump_json().encode() + b"\n")
    try:
        await until(lambda: len(triers()) == 4, "a trial")
        pids = [process.pid for process in triers()]
    finally:
        runner.kill()
        await runner.wait()
    await until(lambda: not any(alive(pid) for pid in pids), "the end of the trial")
