"""The last words of real processes."""

import asyncio
import sys

import pytest

from exo.worker.last_words import LONGEST, last_words

LINE = "libc++abi: terminating due to uncaught exception: [METAL] Insufficient Memory"


async def told(program: str) -> str:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
    assert child.stderr is not None
    async with asyncio.timeout(20):
        words = await last_words(child.stderr)
        await child.wait()
    return words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", ""),
        (f"{LINE}\n", LINE),
        (f"first\n{LINE}\n\n  \n", LINE),
        (f"{LINE}\n15:04:05 I exo.runner.main: it is ready\n", LINE),
        (f'{LINE}\n{{"time": "2026-01-01T00:00:00", "message": "it is ready"}}\n', LINE),
        ("15:04:05 I exo.runner.main: it is ready\n", ""),
        ("x" * 10_000, "x" * LONGEST),
        ("first\n" * 5000 + LINE, LINE),
    ],
)
async def test_the_last_line_that_is_not_of_the_log(said: str, words: str) -> None:
    assert await told(f"import os; os.write(2, {said!r}.encode())") == words


async def test_what_aborts_below_python() -> None:
    assert await told(f"import os; os.write(2, {LINE!r}.encode()); os.abort()") == LINE


async def test_bytes_that_are_no_text_and_what_would_steer_a_terminal() -> None:
    assert await told("import os; os.write(2, b'\\xff \\x1b[31mred\\n')") == "\ufffd [31mred"


async def test_all_of_it_goes_on_to_this_process(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    await told("import os; os.write(2, b'one\\ntwo\\n' * 3000)")
    assert capfdbinary.readouterr().err == b"one\ntwo\n" * 3000
