"""Two ranks on one core each against one rank on one core: by layers (pipeline), and by slices of every layer (tensor).

SmolLM2 has nine heads, which do not divide by two; measured is a random model of about its size.
"""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.contenders import ENGINE, Generate, give_order, running, take_answer, wait_said
from bench.engine_setup import Setup
from bench.engine_speed import compare
from bench.figures import Measured
from exo.domain.shard import Sharding
from exo.node.cores import usable_cores
from tests.stack import free_port
from tests.tiny_models import build, prompt

SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "head_dim": 64,
}
"""78 million weights in float32."""
STREAMS = (1, 8)
PREFILL_TOKENS = 512
DECODE_TOKENS = 48


def ranks(setup: Setup) -> None:
    """Print the speeds of one rank, of two by layers, and of two by slices."""
    if usable_cores() < 2:
        print("\nranks: there is one core only")
        return
    folder = build("llama", setup.work / "random", **SIZES)
    with (
        group(folder, setup.work, "pipeline", 1) as one,
        group(folder, setup.work, "pipeline", 2) as pipeline,
        group(folder, setup.work, "tensor", 2) as tensor,
    ):
        contenders = {"one rank": one, "pipeline": pipeline, "tensor": tensor}
        pairs = [(who, "one rank") for who in ("pipeline", "tensor")]
        compare(setup, contenders, {"prefill": prefill, "decode": decode}, STREAMS, pairs)


@contextmanager
def group(folder: Path, work: Path, sharding: Sharding, size: int) -> Generator[Generate]:
    """The ranks of one model, each on a core of its own."""
    ports = ",".join(str(free_port()) for _ in range(size))
    with ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        logs = [work / f"{sharding}-{size}-{rank}.log" for rank in range(size)]
        for rank, log in enumerate(logs):
            command = ["taskset", "-c", str(rank), sys.executable, "-m", ENGINE, str(folder), str(work / "cache")]
            command += ["--rank", str(rank), "--ports", ports, "--sharding", sharding]
            processes.append(stack.enter_context(running(command, log, {})))
        for process, log in zip(processes, logs, strict=True):
            wait_said(process, log)

        def generate(prompts: list[list[int]], max_tokens: int) -> Measured:
            for process in processes:
                give_order(process, prompts, max_tokens)
            answers = [take_answer(process) for process in processes]
            return answers[0]

        yield generate


def prefill(setup: Setup, generate: Generate, streams: int) -> Measured:
    """Prompt tokens per second: of each answer only the first token is generated."""
    prompts = [prompt(setup.tokens(PREFILL_TOKENS) // streams, setup.number()) for _ in range(streams)]
    return Measured(sum(map(len, prompts)), generate(prompts, 1).seconds)


def decode(setup: Setup, generate: Generate, streams: int) -> Measured:
    """Output tokens per second, with the prefill of 16 tokens a stream in it."""
    return generate([prompt(16, setup.number()) for _ in range(streams)], setup.tokens(DECODE_TOKENS))
