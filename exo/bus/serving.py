"""Keeps the NATS server of this node running: starts it again after a kill, and after a full disk."""

import ctypes
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

LOOK_PAUSE = 1.0
"""Seconds between two looks at what the server says."""
DISK_LEAST = 64 * 2**20
"""Bytes that must be free for JetStream to start."""
LAST_WORDS = 2.0
"""Seconds at most that a server that is to stop waits for its clients to go."""
STOP_PATIENCE = 5.0
"""Seconds that the server has to stop."""
NO_SPACE = b"no space left on device"
"""What the server logs of a full disk. Until it is restarted that stream takes nothing more, room or not."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Serving:
    """One server and its restarts."""

    def __init__(self, command: Sequence[str], store: Path, log_file: Path, is_left: Callable[[], bool]) -> None:
        """`store`: the folder of its streams; `log_file`: where it writes what it has to say; `is_left`: whether what
        started this process is gone, and wants it to end too."""
        self._command = command
        self._is_left = is_left
        self._store = store
        self._log = _LogTail(log_file)
        self._told = False
        self._is_full = False
        self._child = self._started()

    def run(self) -> int:
        """Serve until SIGINT or SIGTERM, or until left: 0. Else, where the server ended by itself: its exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self._stop())
        while True:
            try:
                code = self._child.wait(LOOK_PAUSE)
            except subprocess.TimeoutExpired:
                self._look()
                continue
            if self._told:
                return 0
            if code >= 0:
                return code
            logger.warning("nats-server was ended by signal %d; starting it again", -code)
            self._child = self._started()

    def _stop(self) -> None:
        """Told once, it lets the others say their last words first: all processes of a node are stopped together."""
        if not self._told:
            self._told = True
            deadline = time.monotonic() + LAST_WORDS
            while time.monotonic() < deadline and _has_clients(self._child.pid):
                time.sleep(0.05)
        self._child.terminate()

    def _look(self) -> None:
        if self._told:
            self._child.kill()  # it has had its time: LOOK_PAUSE for what takes milliseconds
            return
        if self._is_left():
            logger.info("honcho, which started this process, is gone: ending")
            self._stop()
            return
        if not self._is_full and self._log.says(NO_SPACE):
            self._is_full = True
            logger.error("the disk that holds %s is full: free some space, then it goes on", self._store)
        if self._is_full and shutil.disk_usage(self._store).free >= DISK_LEAST:
            logger.warning("there is room on the disk again; starting nats-server anew")
            self._restart()

    def _restart(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._is_full = False
        if not self._told:
            self._child = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        self._log.skip()
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a signal for the whole group is for this process to pass on
            preexec_fn=_die_with_parent,  # noqa: PLW1509  this process has one thread
        )


class _LogTail:
    """What was written to a log file since the last look. The server begins the file anew when it is large."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0

    def skip(self) -> None:
        """Leave out what is there already."""
        self._offset = self._file.stat().st_size if self._file.exists() else 0

    def says(self, text: bytes) -> bool:
        """Whether a text is in what is new."""
        if not self._file.exists():
            return False
        with self._file.open("rb") as file:
            if self._file.stat().st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        return text in new


def _has_clients(pid: int) -> bool:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(connection.status == psutil.CONN_ESTABLISHED for connection in connections)


def _die_with_parent() -> None:
    """In the child: end when `exo nats` is killed. Only Linux can; elsewhere the server then stays."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
