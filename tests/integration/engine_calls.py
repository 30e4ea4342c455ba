"""An engine asked by hand, step by step."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.runner.engines.base import Engine, EngineOutput, TokenOutput


def prompt(engine: Engine, text: str) -> list[int]:
    """The tokens of a conversation of one message."""
    return engine.tokenizer.encode_chat([{"role": "user", "content": text}])


def drain(engine: Engine) -> list[EngineOutput]:
    """All outputs until nothing is in flight."""
    outputs: list[EngineOutput] = []
    while engine.in_flight:
        outputs += engine.step()
    return outputs


def step_until(engine: Engine, reached: Callable[[list[EngineOutput]], bool]) -> list[EngineOutput]:
    """The outputs up to where they are as wanted."""
    outputs: list[EngineOutput] = []
    while not reached(outputs):
        assert engine.in_flight
        outputs += engine.step()
    return outputs


def tokens_by_task(outputs: Sequence[EngineOutput]) -> Mapping[TaskId, list[int]]:
    """The tokens of each request; none for one that is not there."""
    tokens: defaultdict[TaskId, list[int]] = defaultdict(list)
    for output in outputs:
        if isinstance(output, TokenOutput):
            tokens[output.task_id].append(output.token)
    return tokens


def alone(engine: Engine, text: str, params: SamplingParams) -> list[int]:
    """The tokens of an answer beside which nothing runs."""
    task_id = TaskId("alone")
    engine.submit(task_id, prompt(engine, text), params)
    return tokens_by_task(drain(engine))[task_id]
