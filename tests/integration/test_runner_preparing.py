"""Requests that a runner is given before it can read them."""

import asyncio

import pytest

from exo.bus.client import Bus
from exo.bus.requests import get_payload, put_request
from exo.domain.ids import TaskId
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.scripted_tokenizer import ScriptedTokenizer
from exo.runner.preparing import Preparer, Prompt

TASK = TaskId("t1")
REQUEST = GenerationRequest(messages=(ChatMessage(role="user", content="hi"),), params=SamplingParams())


async def test_a_payload_that_comes_after_its_task_is_waited_for(bus: Bus) -> None:
    begun = asyncio.create_task(Preparer(bus, ScriptedTokenizer()).prepare(TASK))
    await asyncio.sleep(0)
    # It asked before on the same connection, and so has its answer before this one.
    assert await get_payload(bus, TASK) is None
    await put_request(bus, TASK, REQUEST)
    prompt = await begun
    assert isinstance(prompt, Prompt)
    assert prompt.tokens == list(b"hi")


async def test_a_payload_that_is_gone_is_not_waited_for_without_end(bus: Bus) -> None:
    with pytest.raises(Rejected) as refused:
        await Preparer(bus, ScriptedTokenizer(), stored_within=0.05).prepare(TASK)
    assert refused.value.code == "request_expired"
