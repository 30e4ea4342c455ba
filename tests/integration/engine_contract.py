"""What every engine does. Each engine's tests inherit it, or what is more of one that computes (`model_contract`), and
give the fixtures `engine`, which is loaded, `tight`, the same with less memory than its context needs, and `reference`,
what the engine's library generates by itself, greedily, one prompt at a time."""

from collections.abc import Callable, Sequence

import pytest
from engine_calls import alone, drain, prompt, step_until, tokens_by_task

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Rejected
from exo.runner.engines.base import Engine, EngineOutput, PrefillOutput, TokenOutput
from tests.pipelines import pipeline_of, text_of

Reference = Callable[[Sequence[Sequence[int]], int], Sequence[Sequence[int]]]
"""From prompts, and how many tokens at most, to the answers' tokens, the end token included."""

ENDLESS = 10**9
"""Tokens of a context that no memory holds."""
QUESTION = "What is the capital of France?"
STORY = "Tell me a long story."
TOPICS = ("rain", "the sea", "bread", "a clock", "snow", "a train", "an old tree", "the moon")
GREEDY = SamplingParams(temperature=0, max_tokens=16)
A, B, C = TaskId("a"), TaskId("b"), TaskId("c")


class EngineContract:
    """Tests of an engine that answers."""

    too_many = 10**8
    """Tokens that the context of `tight` has room for, and its memory has not."""

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, engine: Engine) -> None:
        assert engine.in_flight == 0, "the test before left requests behind"

    def message(self, text: str) -> str:
        """What an engine must be asked for an answer to `text`."""
        return text

    def prompt(self, engine: Engine, text: str) -> list[int]:
        """The same as tokens."""
        return prompt(engine, self.message(text))

    def alone(self, engine: Engine, text: str, params: SamplingParams) -> list[int]:
        """The tokens of an answer beside which nothing runs."""
        return alone(engine, self.message(text), params)

    def test_an_answer_is_right_and_ends_by_itself(self, engine: Engine) -> None:
        engine.submit(A, self.prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=40))
        outputs = drain(engine)
        assert "Paris" in said(engine, outputs, A)
        assert outputs[-1] == TokenOutput(A, max(tokens_by_task(outputs)[A][-1:]), "stop")
        assert tokens_by_task(outputs)[A][-1] in engine.tokenizer.end_tokens

    def test_a_prompt_is_told_to_be_computed_before_the_first_token(self, engine: Engine) -> None:
        tokens = self.prompt(engine, QUESTION)
        engine.submit(A, tokens, GREEDY)
        outputs = drain(engine)
        told = [output for output in outputs if isinstance(output, PrefillOutput)]
        assert outputs[: len(told)] == told
        assert (told[-1].done, told[-1].total) == (len(tokens), len(tokens))

    def test_eight_requests_that_join_one_after_the_other_equal_the_library(
        self, engine: Engine, reference: Reference
    ) -> None:
        prompts = {TaskId(topic): self.prompt(engine, f"Write a sentence about {topic}.") for topic in TOPICS}
        outputs: list[EngineOutput] = []
        for task_id, tokens in prompts.items():
            engine.submit(task_id, tokens, GREEDY)
            outputs += engine.step()
        outputs += drain(engine)
        expected = reference(list(prompts.values()), 16)
        assert [tokens_by_task(outputs)[task_id] for task_id in prompts] == [list(tokens) for tokens in expected]

    def test_a_cancelled_request_says_no_more_and_changes_nothing_for_the_others(self, engine: Engine) -> None:
        expected = self.alone(engine, QUESTION, GREEDY)
        engine.submit(A, self.prompt(engine, STORY), SamplingParams(max_tokens=500))
        engine.submit(B, self.prompt(engine, QUESTION), GREEDY)
        before = step_until(engine, lambda outputs: len(tokens_by_task(outputs)[A]) >= 2)
        engine.cancel([A, A, TaskId("unknown")])
        after = drain(engine)
        assert A not in {output.task_id for output in after}
        assert tokens_by_task(before + after)[B] == expected

    def test_all_that_runs_can_be_cancelled_and_its_names_used_again(self, engine: Engine) -> None:
        for _ in range(2):
            engine.submit(A, self.prompt(engine, STORY), SamplingParams(max_tokens=500))
            step_until(engine, lambda outputs: bool(tokens_by_task(outputs)[A]))
            engine.submit(B, self.prompt(engine, STORY), SamplingParams(max_tokens=500))
            engine.cancel([A, B])
            assert engine.in_flight == 0
            assert engine.step() == []

    def test_a_stop_sequence_ends_an_answer_before_it(self, engine: Engine) -> None:
        pipeline, text = pipeline_of(engine.tokenizer, stop=["Paris"]), ""
        engine.submit(A, self.prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=40))
        while engine.in_flight:
            for output in engine.step():
                if isinstance(output, TokenOutput):
                    result = pipeline.push(output.token, output.finish_reason)
                    text += text_of(result)
                    engine.cancel([A] if result.stop_sequence else [])
        assert text == "The capital of France is "

    def test_the_limit_of_tokens_is_exact(self, engine: Engine) -> None:
        engine.submit(A, self.prompt(engine, STORY), SamplingParams(temperature=0, max_tokens=7))
        reasons = [output.finish_reason for output in drain(engine) if isinstance(output, TokenOutput)]
        assert reasons == [*[None] * 6, "length"]

    def test_the_same_seed_gives_the_same_text_whatever_runs_beside(self, engine: Engine) -> None:
        params = SamplingParams(temperature=1, top_p=0.95, seed=2**63 + 1, max_tokens=12)
        text = "Write a poem about rain."
        expected = self.alone(engine, text, params)
        engine.submit(B, self.prompt(engine, STORY), SamplingParams(max_tokens=20))
        step_until(engine, lambda outputs: len(tokens_by_task(outputs)[B]) >= 2)
        engine.submit(A, self.prompt(engine, text), params)
        engine.submit(C, self.prompt(engine, "Hi"), SamplingParams(seed=1, max_tokens=5))
        assert tokens_by_task(drain(engine))[A] == expected

    def test_logprobs_are_those_of_the_tokens_and_their_bytes_join_to_the_text(self, engine: Engine) -> None:
        engine.submit(A, self.prompt(engine, QUESTION), SamplingParams(temperature=0, max_tokens=6, logprobs=3))
        outputs = [output for output in drain(engine) if isinstance(output, TokenOutput)]
        told = [output.logprobs for output in outputs if output.logprobs is not None]
        assert len(told) == len(outputs) == 6
        assert b"".join(bytes(one.bytes) for one in told).decode() == said(engine, outputs, A)
        for one in told:
            values = [top.logprob for top in one.top_logprobs]
            assert values == sorted(values, reverse=True)
            assert len(values) == 3
            assert (one.top_logprobs[0].bytes, one.top_logprobs[0].logprob) == (one.bytes, one.logprob)

    def test_nothing_is_told_of_probabilities_that_nobody_asked_for(self, engine: Engine) -> None:
        engine.submit(A, self.prompt(engine, QUESTION), GREEDY)
        engine.submit(B, self.prompt(engine, QUESTION), GREEDY.model_copy(update={"logprobs": 0}))
        told = [(output.task_id, output.logprobs) for output in drain(engine) if isinstance(output, TokenOutput)]
        assert {logprobs for task_id, logprobs in told if task_id == A} == {None}
        assert all(logprobs and logprobs.top_logprobs == () for task_id, logprobs in told if task_id == B)

    def test_a_request_over_the_context_is_refused_with_both_numbers(self, engine: Engine) -> None:
        with pytest.raises(Rejected, match=r"context length is 8192 tokens, but 8200 ") as refused:
            engine.submit(A, [5] * 8000, SamplingParams(max_tokens=200))
        assert refused.value.code == "context_length_exceeded"
        assert engine.in_flight == 0

    def test_a_request_that_memory_can_never_hold_is_refused_with_both_numbers(self, tight: Engine) -> None:
        with pytest.raises(Rejected, match=rf"needs {self.too_many + 3} tokens .* memory holds \d+") as refused:
            tight.submit(A, [50, 51, 52], SamplingParams(max_tokens=self.too_many))
        assert refused.value.code == "context_length_exceeded"
        assert tight.in_flight == 0
        tight.submit(A, [50, 51, 52], SamplingParams())
        assert tight.in_flight == 1
        tight.cancel([A])

    def test_requests_that_make_no_sense_are_refused(self, engine: Engine) -> None:
        engine.submit(B, self.prompt(engine, QUESTION), GREEDY)
        for task_id, tokens, code in (
            (A, [], "empty_prompt"),
            (A, [2**70, 5], "invalid_request"),
            (B, [5], "duplicate_task"),
        ):
            with pytest.raises(Rejected) as refused:
                engine.submit(task_id, tokens, GREEDY)
            assert refused.value.code == code
        assert engine.in_flight == 1
        assert drain(engine)


def said(engine: Engine, outputs: Sequence[EngineOutput], task_id: TaskId) -> str:
    """The text of one request."""
    pipeline = pipeline_of(engine.tokenizer)
    own = [output for output in outputs if isinstance(output, TokenOutput) and output.task_id == task_id]
    return "".join(text_of(pipeline.push(output.token, output.finish_reason)) for output in own)
