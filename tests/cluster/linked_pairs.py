"""Two instances of a real model that can be linked, and what a request to them became."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from exo.domain.prefill import PrefillAttempt
from tests.stack import Stack, wait_until

STORY = "The keeper of the lighthouse wrote down every ship that went by. "
LONG_PROMPT = "{name}: " + STORY * 30 + "What did he write?"
"""Some 400 tokens; `name` makes it one that no prefix cache knows."""
PLACED = 180.0
"""Seconds for an instance to be ready."""


def placed_on(stack: Stack, model: str, *options: str) -> str:
    """The id of one more instance, when it is ready."""
    done = stack.cli("place", model, *options, timeout=PLACED)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.partition(":")[0]


@dataclass(frozen=True)
class Answered:
    """A request's end, as the API and the log tell it."""

    text: str
    prompt_tokens: int
    instance_id: str
    attempt: PrefillAttempt | None


@dataclass(frozen=True)
class Linked:
    """Two instances of a model."""

    stack: Stack
    model: str
    prefill_id: str
    decode_id: str

    @contextmanager
    def link(self) -> Generator[None]:
        """Linked for a while."""
        url, body = f"{self.stack.url}/instance/{self.decode_id}/prefill", {"prefill_id": self.prefill_id}
        httpx.post(url, params={"wait": 10}, json=body, timeout=20).raise_for_status()
        try:
            yield
        finally:
            httpx.delete(url, params={"wait": 10}, timeout=20)

    def own(self, prompt: str) -> Answered:
        """The answer of the instance that prefills, to a prompt that it has computed: linked the other way round, it is
        the one that is asked, and needs nobody."""
        with Linked(self.stack, self.model, self.decode_id, self.prefill_id).link():
            answered = self.ask(prompt)
        assert answered.instance_id == self.prefill_id
        assert answered.attempt is None
        return answered

    def ask(self, prompt: str, max_tokens: int = 24) -> Answered:
        """The greedy answer, once its end is in the log."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": max_tokens}
        answer = httpx.post(f"{self.stack.url}/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        whole = answer.json()
        path = f"{self.stack.url}/v1/traces/{whole['id']}"
        wait_until(lambda: httpx.get(path).json().get("ended_at") is not None, "the end in the log", 10)
        trace = httpx.get(path).json()
        attempt = trace["prefill"] and PrefillAttempt.model_validate(trace["prefill"])
        text = whole["choices"][0]["message"]["content"]
        return Answered(text, whole["usage"]["prompt_tokens"], trace["instance_id"], attempt)
