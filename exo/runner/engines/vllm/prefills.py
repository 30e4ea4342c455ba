"""How far prompts are: vLLM itself says nothing of a request before its first token."""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm import LLMEngine
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core_client import InprocClient
from vllm.v1.request import Request

from exo.domain.ids import TaskId
from exo.runner.engines.base import PrefillOutput


@dataclass(slots=True)
class _Prompt:
    request_id: str
    """As vLLM calls it inside."""
    told: int = 0
    """Tokens."""


class Prefills:
    """The prompts that have no token yet. Looked up in vLLM's scheduler, which runs in this process."""

    def __init__(self, engine: LLMEngine) -> None:
        self._requests = _requests(engine)
        self._prompts: dict[TaskId, _Prompt] = {}

    def begin(self, task_id: TaskId, request_id: str) -> None:
        """Follows one more; `request_id` is what vLLM's `add_request` gave."""
        self._prompts[task_id] = _Prompt(request_id)

    def end(self, task_id: TaskId) -> None:
        """Follows it no longer."""
        self._prompts.pop(task_id, None)

    def advanced(self) -> list[PrefillOutput]:
        """Of each that is further than it was and not done: its end is told with its first token."""
        return [told for task_id, prompt in self._prompts.items() if (told := self._told(task_id, prompt)) is not None]

    def _told(self, task_id: TaskId, prompt: _Prompt) -> PrefillOutput | None:
        request = self._requests.get(prompt.request_id)
        if request is None or not prompt.told < request.num_computed_tokens < request.num_prompt_tokens:
            return None
        prompt.told = request.num_computed_tokens
        cached = request.prefill_stats.num_cached_tokens if request.prefill_stats is not None else 0
        return PrefillOutput(task_id, prompt.told, request.num_prompt_tokens, cached)


def _requests(engine: LLMEngine) -> Mapping[str, Request]:
    """By vLLM's own names for them; none where its scheduler is elsewhere."""
    client = engine.engine_core
    scheduler = client.engine_core.scheduler if isinstance(client, InprocClient) else None
    return scheduler.requests if isinstance(scheduler, Scheduler) else {}
