"""How many tokens a prompt has: asked of a runner, which alone has the model's tokenizer. Plain messages; the prompt
itself lies in `REQUESTS`."""

from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter

from exo.bus.client import Bus
from exo.bus.runner_questions import answer_questions, ask_runner
from exo.domain.ids import InstanceId, TaskId
from exo.domain.messages.counts import CountAnswer, CountRefused, TokensCounted
from exo.errors import Rejected

Count = Callable[[TaskId], Awaitable[int]]
"""Tokens of the prompt that lies under a task's id. May raise Rejected."""

_answers: TypeAdapter[CountAnswer] = TypeAdapter(CountAnswer)


async def answer_counts(bus: Bus, instance_id: InstanceId, count: Count) -> None:
    """Answer for an instance, for as long as the connection lives. Long prompts hold up no others."""

    async def answer(question: bytes) -> CountAnswer:
        return await _counted(count, TaskId(question.decode()))

    await answer_questions(bus, bus.subjects.count(instance_id), answer)


async def ask_count(bus: Bus, instance_id: InstanceId, task_id: TaskId, patience: float) -> int:
    """The tokens of the prompt that lies under a task's id, by an instance's runner.

    Raises Rejected where the model refuses the prompt, and Retryable where nobody answers within `patience`, seconds.
    """
    subject, question = bus.subjects.count(instance_id), task_id.encode()
    gone, late = "the runner that would count the tokens is gone", "the tokens were not counted"
    answer = await ask_runner(bus, subject, question, patience, _answers, gone=gone, late=late)
    if isinstance(answer, CountRefused):
        raise Rejected(answer.reason, code=answer.code, param=answer.param)
    return answer.tokens


async def _counted(count: Count, task_id: TaskId) -> CountAnswer:
    try:
        return TokensCounted(tokens=await count(task_id))
    except Rejected as refusal:
        return CountRefused(code=refusal.code, reason=refusal.reason, param=refusal.param)
