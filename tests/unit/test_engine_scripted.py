import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.errors import Fatal, Rejected
from exo.runner.engines import make_engine
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput
from exo.runner.engines.scripted import CRASH_EXIT_CODE, ScriptedEngine
from exo.runner.kv.assembling import assembled
from exo.runner.kv.form import Piece, PromptState
from tests import builders
from tests.pipelines import pipeline_of
from tests.pipelines import text_of as answer_text

SHARD = builders.whole(builders.card(family="scripted", context=200))
A, B = TaskId("a"), TaskId("b")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ScriptedEngine]:
    made = ScriptedEngine()
    made.load(SHARD, tmp_path, lambda done, total: None)
    yield made
    made.close()


def submit(engine: ScriptedEngine, task_id: TaskId, message: object, max_tokens: int | None = None) -> None:
    content = message if isinstance(message, str) else json.dumps(message)
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": content}])
    engine.submit(task_id, prompt, SamplingParams(max_tokens=max_tokens))


def drain(engine: ScriptedEngine) -> list[EngineOutput]:
    outputs: list[EngineOutput] = []
    while engine.in_flight:
        outputs += engine.step()
    return outputs


def text_of(engine: ScriptedEngine, outputs: list[EngineOutput], task_id: TaskId) -> str:
    pipeline = pipeline_of(engine.tokenizer)
    tokens = [output for output in outputs if isinstance(output, TokenOutput) and output.task_id == task_id]
    return "".join(answer_text(pipeline.push(token.token, token.finish_reason)) for token in tokens)


def test_plain_text_is_echoed_word_by_word(engine: ScriptedEngine) -> None:
    submit(engine, A, "To be, or  not to be ")
    outputs = drain(engine)
    assert text_of(engine, outputs, A) == "To be, or  not to be "
    assert outputs[0] == PrefillOutput(A, 21, 21)
    assert len(outputs) == 1 + 7 + 1


def test_a_script_is_followed_token_by_token(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["Hel", "lo", [240, 159], [154, 128]]})
    outputs = drain(engine)
    assert text_of(engine, outputs, A) == "Hello🚀"
    assert [output.finish_reason for output in outputs if isinstance(output, TokenOutput)] == [*[None] * 4, "stop"]


def test_a_script_may_finish_by_length(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["a", "b"], "finish": "length"})
    reasons = [output.finish_reason for output in drain(engine) if isinstance(output, TokenOutput)]
    assert reasons == [None, "length"]


def test_max_tokens_is_honoured(engine: ScriptedEngine) -> None:
    submit(engine, A, "one two three four", max_tokens=2)
    outputs = drain(engine)
    assert text_of(engine, outputs, A) == "one two"
    assert outputs[-1] == TokenOutput(A, engine.tokenizer.token(" two"), "length")


def test_requests_run_side_by_side_at_their_own_pace(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["slow"] * 2, "pace": 0.2})
    submit(engine, B, {"tokens": ["fast"] * 4, "pace": 0.01})
    order = [output.task_id for output in drain(engine)]
    assert order.index(A) < order.index(B) + 2
    assert order[-1] == A
    assert order.count(A) == 4
    assert order.count(B) == 6


def test_the_pace_is_kept_and_waiting_costs_no_processor_time(engine: ScriptedEngine) -> None:
    wall, processor = time.monotonic(), time.thread_time()
    submit(engine, A, {"tokens": ["x"] * 3, "pace": 0.05, "prefill": 0.1})
    drain(engine)
    assert time.monotonic() - wall >= 0.1 + 4 * 0.05
    assert time.thread_time() - processor < 0.1


def test_a_cancelled_request_yields_nothing_more_and_the_other_goes_on(engine: ScriptedEngine) -> None:
    submit(engine, A, "one two three")
    submit(engine, B, "four five six")
    engine.step()
    engine.cancel([A, A, TaskId("unknown")])
    outputs = drain(engine)
    assert {output.task_id for output in outputs} == {B}
    assert text_of(engine, outputs, B) == "four five six"


def test_a_long_prefill_can_be_cancelled(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["x"], "prefill": 1000})
    assert engine.step() == []
    engine.cancel([A])
    assert engine.in_flight == 0


def test_a_failing_request_leaves_the_others_alone(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["x"] * 5, "fault": {"kind": "error", "after": 2}})
    submit(engine, B, "four five six")
    outputs = drain(engine)
    assert sum(isinstance(output, TokenOutput) and output.task_id == A for output in outputs) == 2
    assert FailedOutput(A, "engine_error", "the script fails after 2 tokens") in outputs
    assert text_of(engine, outputs, B) == "four five six"


def test_running_out_of_memory_breaks_the_engine(engine: ScriptedEngine) -> None:
    submit(engine, A, {"tokens": ["x"], "fault": {"kind": "out_of_memory"}})
    with pytest.raises(MemoryError):
        drain(engine)


@pytest.mark.parametrize(
    ("fault", "exit_code"),
    [("crash", CRASH_EXIT_CODE), ("hang", None)],
)
def test_a_fault_takes_the_process_with_it(fault: str, exit_code: int | None) -> None:
    program = (
        "from tests.unit.test_engine_scripted import *\n"
        "engine = ScriptedEngine()\n"
        "engine.load(SHARD, Path('.'), lambda done, total: None)\n"
        f"submit(engine, A, {{'tokens': ['x'], 'fault': {{'kind': {fault!r}}}}})\n"
        "print('started', flush=True)\n"
        "drain(engine)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        if exit_code is None:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.3)
            process.kill()
        else:
            assert process.wait(timeout=10) == exit_code


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("{not json", "not JSON"),
        ({"token": ["x"]}, "tokens: Field required"),
        ({"tokens": ["x"], "pace": -1}, "pace"),
        ({"tokens": [[256]]}, "tokens.0"),
        ({"tokens": ["x"], "fault": {"kind": "flood"}}, "fault.kind"),
        ({"tokens": [], "finish": "length"}, "no token"),
    ],
)
def test_a_bad_script_is_refused_with_its_reason(engine: ScriptedEngine, message: object, named: str) -> None:
    with pytest.raises(Rejected, match=named) as refused:
        submit(engine, A, message)
    assert refused.value.code == "invalid_script"
    assert engine.in_flight == 0


def test_a_prompt_over_the_context_is_refused_with_both_numbers(engine: ScriptedEngine) -> None:
    with pytest.raises(Rejected, match=r"context length is 200 tokens, but 201 .*\(101 in the prompt, 100") as refused:
        submit(engine, A, "x" * 101, max_tokens=100)
    assert refused.value.code == "context_length_exceeded"


def test_an_empty_prompt_and_a_repeated_task_are_refused(engine: ScriptedEngine) -> None:
    with pytest.raises(Rejected) as empty:
        submit(engine, A, "")
    assert empty.value.code == "empty_prompt"
    submit(engine, A, "x")
    with pytest.raises(Rejected) as repeated:
        submit(engine, A, "x")
    assert repeated.value.code == "duplicate_task"


def test_loading_reports_every_layer(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    make_engine("scripted", tmp_path).load(SHARD, tmp_path / "missing", lambda done, total: seen.append((done, total)))
    assert seen == [(done, 4) for done in range(5)]


def test_nothing_can_be_submitted_before_loading() -> None:
    with pytest.raises(Fatal):
        ScriptedEngine().submit(A, [1], SamplingParams())


def test_the_last_user_message_is_the_prompt() -> None:
    tokenizer = ScriptedEngine().tokenizer
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "third"},
    ]
    assert bytes(tokenizer.encode_chat(messages)) == b"second"
    with pytest.raises(Rejected):
        tokenizer.encode_chat(messages[2:])


def test_a_state_that_was_handed_out_counts_as_cached(engine: ScriptedEngine) -> None:
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": json.dumps({"tokens": ["a"]})}])
    state = handed_out(engine, prompt)
    assert engine.exchanges == ""
    engine.submit(A, prompt, SamplingParams(), state=state)
    outputs = drain(engine)
    assert outputs[0] == PrefillOutput(A, len(prompt), len(prompt), cached=len(prompt) - 1)
    assert outputs[1] == TokenOutput(A, engine.tokenizer.token("a"))


def test_the_state_of_another_prompt_is_left(engine: ScriptedEngine, caplog: pytest.LogCaptureFixture) -> None:
    one, other = (engine.tokenizer.encode_chat([{"role": "user", "content": text}]) for text in ("one", "two"))
    engine.submit(A, other, SamplingParams(), state=handed_out(engine, one))
    assert drain(engine)[0] == PrefillOutput(A, len(other), len(other), cached=0)
    assert "layer 0 of the state is of another prompt" in caplog.text


def test_a_prefill_is_handed_out_layer_by_layer_and_may_fail_on_the_way(engine: ScriptedEngine) -> None:
    script = {"tokens": [], "fault": {"kind": "error", "after": 2}}
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": json.dumps(script)}])
    pieces: list[Piece] = []
    engine.prefill(A, prompt, pieces.append)
    outputs = drain(engine)
    assert [piece.layer for piece in pieces] == [0, 1]
    assert isinstance(outputs[-1], FailedOutput)
    assert not any(isinstance(output, PrefillOutput) and output.is_last for output in outputs)


def handed_out(engine: ScriptedEngine, prompt: list[int]) -> PromptState:
    """The state of a prompt, of all its tokens but the last."""
    pieces: list[Piece] = []
    engine.prefill(A, prompt, pieces.append)
    drain(engine)
    return assembled(pieces, len(prompt) - 1)
