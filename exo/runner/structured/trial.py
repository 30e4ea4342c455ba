"""The process in which formats are compiled for the first time, since nothing but its end stops a compile.

`python -P -m exo.runner.structured.trial` reads a TrialSource, then TrialRequests. It makes the vocabulary once, and
tries each format in a fork of itself, which may die of it. Ends, with all that it tries, when its input closes.
"""

import contextlib
import os
import resource
import signal
import sys
from typing import NoReturn

from exo.errors import Rejected
from exo.runner.structured.compiling import Constraints
from exo.runner.structured.messages import TrialRequest, TrialSource, TrialVerdict
from exo.runner.structured.vocabulary import Vocabulary

REASON_MOST = 500
"""Characters of a refusal: a pipe takes 4,096 bytes in one piece."""


def main() -> None:
    """Serve. It is started as the first of a process group of its own."""
    source = TrialSource.model_validate_json(sys.stdin.buffer.readline())
    vocabulary = Vocabulary(source.vocabulary.tokenizer_json, source.vocabulary.end_tokens)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that what ended leaves nothing behind
    for line in sys.stdin.buffer:
        if os.fork() == 0:
            _judge(vocabulary, source, line)
    os.killpg(0, signal.SIGKILL)


def tried(vocabulary: Vocabulary, number: int, asked: TrialRequest) -> TrialVerdict:
    """What compiling says."""
    constraints = Constraints(vocabulary, asked.form)
    try:
        wanted = constraints.wanted(asked.request)
        if wanted is not None:
            constraints.guide(wanted, [])
    except Rejected as refusal:
        reason = refusal.reason[:REASON_MOST]
        return TrialVerdict(number=number, reason=reason, code=refusal.code, param=refusal.param)
    return TrialVerdict(number=number, fits=True)


def _judge(vocabulary: Vocabulary, source: TrialSource, line: bytes) -> NoReturn:
    """Has a fork try it, and answers in its place where it dies."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        number, _, asked = line.partition(b" ")
        trying = os.fork()
        if trying == 0:
            _limit(source)
            _say(tried(vocabulary, int(number), TrialRequest.model_validate_json(asked)))
            os._exit(0)
        _, status = os.waitpid(trying, 0)
        if status != 0:
            _say(TrialVerdict(number=int(number)))
    finally:
        os._exit(1)


def _limit(source: TrialSource) -> None:
    """From here on this process ends when it has taken too much time, and fails when it wants too much memory."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, source.seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS may not know this limit
        resource.setrlimit(resource.RLIMIT_AS, (source.memory_bytes, source.memory_bytes))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # what is said of an end that is expected


def _say(verdict: TrialVerdict) -> None:
    """In one write, which others' do not come between."""
    os.write(sys.stdout.fileno(), verdict.model_dump_json().encode() + b"\n")


if __name__ == "__main__":
    main()
