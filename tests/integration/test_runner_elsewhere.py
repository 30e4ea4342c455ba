"""One runner's engine computes a prompt for another's: both sides as they run, with engines that know their states."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exo.bus.client import Bus
from exo.bus.prefills import answer_prefills
from exo.domain.ids import InstanceId, TaskId
from exo.domain.messages.chunks import PrefillPiece
from exo.domain.messages.prefills import PrefillAsked
from exo.domain.messages.requests import GenerationRequest
from exo.domain.prefill import PrefillAttempt, PrefillSource
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.elsewhere import PrefillElsewhere
from exo.runner.engine_thread import EngineThread
from exo.runner.engines.base import EngineOutput
from exo.runner.engines.scripted import ScriptedEngine
from exo.runner.kv.form import AttentionState, Piece
from exo.runner.kv.keys import new_key
from exo.runner.kv.serving import PrefillServer
from exo.runner.prefilling import Prefilling
from exo.runner.preparing import Prompt
from tests import builders
from tests.kv_states import numbers
from tests.stack import free_port

CARD = builders.card(layers=4, context=4096)
INSTANCE = InstanceId("prefill")
SOURCE = PrefillSource(instance=INSTANCE, host="127.0.0.1")
TASK = TaskId("t1")


class Engine:
    """A scripted engine in its thread, and what it computes for others."""

    def __init__(self) -> None:
        self.thread = EngineThread(ScriptedEngine(), 4)
        self.prefilling = Prefilling(self.thread, 1, 256)

    async def load(self) -> None:
        """Be ready to work."""
        self.thread.start()
        await self.thread.call(lambda engine: engine.load(builders.whole(CARD), Path(), lambda _done, _total: None))

    async def take(self, outputs: list[EngineOutput]) -> None:
        for output in outputs:
            self.prefilling.take(output)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    await made.load()
    running = asyncio.create_task(made.thread.run(made.take))
    yield made
    await made.prefilling.close()
    await made.thread.call(lambda engine: engine.held([]))  # what was to be cancelled is
    running.cancel()


def prompt(**script: object) -> Prompt:
    """Some 600 tokens, one for each byte."""
    text = json.dumps({"tokens": ["word "] * 60, **script})
    return Prompt(GenerationRequest(prompt=text, params=SamplingParams()), list(text.encode()), None)


async def fetched(bus: Bus, engine: Engine, wanted: Prompt) -> tuple[Prompt, list[PrefillPiece]]:
    """The prompt afterwards, and the chunks on the way."""
    pieces: list[PrefillPiece] = []

    async def send(piece: PrefillPiece) -> None:
        pieces.append(piece)

    elsewhere = PrefillElsewhere(bus, engine.thread, CARD.layers)
    return await elsewhere.with_state(wanted, TASK, SOURCE, 0.0, send), pieces


def error_of(result: Prompt) -> str:
    assert result.state is None
    assert result.attempt is not None
    assert result.attempt.tokens == 0
    return result.attempt.error


async def test_the_state_of_all_tokens_but_the_last_comes_and_how_far_it_is(bus: Bus, engine: Engine) -> None:
    await answer_prefills(bus, INSTANCE, engine.prefilling.begin)
    wanted = prompt(pace=0.3)
    result, pieces = await fetched(bus, engine, wanted)
    assert result.state is not None
    assert result.state.tokens == len(wanted.tokens) - 1
    assert result.attempt == PrefillAttempt(
        instance_id=INSTANCE,
        tokens=result.state.tokens,
        asked_after=result.attempt.asked_after if result.attempt else 0,
        seconds=result.attempt.seconds if result.attempt else 0,
    )
    done = [piece.done for piece in pieces]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] < len(wanted.tokens)
    assert {piece.total for piece in pieces} == {len(wanted.tokens)}


async def test_a_short_prompt_is_not_asked_for(bus: Bus, engine: Engine) -> None:
    short = Prompt(GenerationRequest(prompt="hello", params=SamplingParams()), list(b"hello"), None)
    result, pieces = await fetched(bus, engine, short)
    assert (result, pieces) == (short, [])


async def test_what_the_other_engine_fails_with_is_the_reason(bus: Bus, engine: Engine) -> None:
    await answer_prefills(bus, INSTANCE, engine.prefilling.begin)
    result, _ = await fetched(bus, engine, prompt(fault={"kind": "error", "after": 2}))
    assert "did not compute the state" in error_of(result)
    again, _ = await fetched(bus, engine, prompt())
    assert again.state is not None


async def test_a_runner_that_is_gone_is_the_reason(bus: Bus, engine: Engine) -> None:
    result, _ = await fetched(bus, engine, prompt())
    assert error_of(result) == "its runner is gone"


async def test_a_port_where_nobody_listens_is_the_reason(bus: Bus, engine: Engine) -> None:
    port = free_port()

    async def begin(_asked: PrefillAsked) -> int:
        return port

    await answer_prefills(bus, INSTANCE, begin)
    result, _ = await fetched(bus, engine, prompt())
    assert "was not reached" in error_of(result)


async def test_a_state_of_other_tokens_is_not_taken(bus: Bus, engine: Engine) -> None:
    server = PrefillServer(lambda _task_id: None)

    async def begin(asked: PrefillAsked) -> int:
        outgoing = server.expect(asked.task_id, asked.key)
        outgoing(Piece(0, AttentionState(numbers((99, 1, 4)), numbers((99, 1, 4)))))
        asyncio.get_running_loop().call_soon(outgoing.done, 99)
        return await server.start()

    await answer_prefills(bus, INSTANCE, begin)
    result, _ = await fetched(bus, engine, prompt())
    assert "its state is of 99 tokens" in error_of(result)
    await server.close()


async def test_one_prompt_too_many_is_refused_and_so_are_unknown_tokens(engine: Engine) -> None:
    first = PrefillAsked(task_id=TASK, key=new_key(), tokens=tuple(prompt(prefill=60.0).tokens))
    assert await engine.prefilling.begin(first) > 0
    with pytest.raises(Rejected, match="computes 1 prompts for others already"):
        await engine.prefilling.begin(first.replaced({"task_id": TaskId("t2"), "key": new_key()}))
    other = Prefilling(engine.thread, 4, 256)
    with pytest.raises(Rejected, match="has no token 256"):
        await other.begin(PrefillAsked(task_id=TaskId("t3"), key=new_key(), tokens=(1, 256)))
    await other.close()
