"""Settings: the only reader of the environment. Read once per process and passed down."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal, cast, get_args
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exo.domain.ids import is_token
from exo.domain.limits import QUEUE_PER_MODEL
from exo.domain.ray import RAY_NODES_MOST, RayCluster
from exo.domain.shard import EngineName
from exo.errors import Fatal, without_prefix
from exo.log_setup import LogFormat


def _cluster_name(name: str) -> str:
    if not is_token(name):
        raise ValueError("only letters, digits, '-' and '_' may stand in it")
    return name


def _nats_url(url: str) -> str:
    hint = "it must look like nats://127.0.0.1:4222"
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        usable = parts.scheme in {"nats", "tls"} and parts.hostname and parts.port != 0 and " " not in url
    except ValueError as error:  # of the port, or the host
        raise ValueError(f"{error}; {hint}") from error
    if not usable:
        raise ValueError(hint)
    return url


def _folders(value: object) -> object:
    return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _engines(value: object) -> object:
    names = _listed(value)
    if not isinstance(names, tuple) or names == ("auto",):
        return ()
    unknown = [name for name in cast("tuple[str, ...]", names) if name not in get_args(EngineName)]
    if unknown:
        raise ValueError(f"'{unknown[0]}' is no engine: auto, mlx, vllm, or several of them separated by commas")
    return tuple(dict.fromkeys(cast("tuple[str, ...]", names)))


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"'{origin}' is no origin such as https://chat.example.com or http://localhost:3000")
    return origins


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if host != "*" and not _HOST.fullmatch(host):
            raise ValueError(f"'{host}' is no name such as exo.example.com, without a port")
    return hosts


def _model_or_none(name: str) -> str:
    return "" if name.lower() == "none" else name


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")


_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
"""A name, or an address."""


class Settings(BaseSettings):
    """Everything that can be set, each by the environment variable `EXO_` + its name. docs/settings.md lists them."""

    model_config = SettingsConfigDict(env_prefix="EXO_", frozen=True, env_ignore_empty=True)

    home: Path = Field(default_factory=lambda: user_data_path("exo"))
    """Folder of this node: its id, the log, models, NATS' files."""
    cluster: Annotated[str, AfterValidator(_cluster_name)] = "home"
    """Nodes with one name on one NATS make one cluster."""
    nats_url: Annotated[str, AfterValidator(_nats_url)] = "nats://127.0.0.1:4222"
    """`exo nats` listens at this port when the host is this machine."""
    api_host: str = "127.0.0.1"
    """Address that the API listens at. One that others reach needs a key."""
    api_port: Annotated[int, Field(ge=1, le=65535)] = 52415
    api_insecure: bool = False
    """Listen at an address that others reach also without a key."""
    api_key: SecretStr | None = None
    """The key that the command line shows to the API."""
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_origins)] = ()
    """Web pages from these origins may call the API; `*`: from all."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_hosts)] = ()
    """Names by which the API may be called without a key, beside this machine's own; `*`: all."""
    ollama_at_root: bool = False
    """Answer Ollama's endpoints also at `/api`, where its clients look for them, and not below `/ollama` alone."""
    default_model: Annotated[str, AfterValidator(_model_or_none)] = "HuggingFaceTB/SmolLM2-135M-Instruct"
    """Placed when the API starts, and used by `exo chat`; `none`: none."""
    engine: Annotated[tuple[EngineName, ...], NoDecode, BeforeValidator(_engines)] = ()
    """Engines that this node offers, the preferred one first; `auto`, which is none here: all that can run. `scripted`
    is for tests."""
    ray_address: str = ""
    """`host:port` of a Ray cluster's head, for models on vLLM over several machines."""
    ray_nodes: Annotated[int, Field(ge=1, le=RAY_NODES_MOST)] = 1
    """Machines of that cluster over which this node's vLLM divides a model."""
    model_folders: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_folders)] = ()
    """More folders to look for models in, separated as in PATH; each holds model folders."""
    offline: bool = False
    """Never reach for a package index or the hub."""
    step_timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds that one step of an engine may take before its runner is taken for hung and started again."""
    cpu_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """Most threads that a runner computes with on a CPU; 0: the cores, divided over the runners of this node."""
    queue_per_model: Annotated[int, Field(ge=1, le=100_000)] = QUEUE_PER_MODEL
    """Generations that may wait for one model; who comes then is told to come again. The leading master's counts."""
    log_prompts: bool = False
    """Keep prompts and answers in the event log. Off: they never enter it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: LogFormat = "text"
    """Of what the processes say: lines for people, or one JSON object a line."""

    @property
    def ray(self) -> RayCluster | None:
        """The Ray cluster that vLLM is to use; None: it stays on this machine."""
        return RayCluster(address=self.ray_address, nodes=self.ray_nodes) if self.ray_nodes > 1 else None

    @property
    def api_url(self) -> str:
        """Where the API is for who is on its machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.api_host, self.api_host)
        return f"http://[{host}]:{self.api_port}" if ":" in host else f"http://{host}:{self.api_port}"

    @property
    def log_file(self) -> Path:
        """The event log."""
        return self.home / "log" / "exo.sqlite3"

    @property
    def models_dir(self) -> Path:
        """Models that exo prepared or imported itself."""
        return self.home / "models"

    @property
    def cache_dir(self) -> Path:
        """What can be made again."""
        return self.home / "cache"


def load_settings(**overrides: object) -> Settings:
    """The settings of this process. Raises Fatal, naming the variable, where one has no usable value."""
    try:
        return Settings(**overrides)  # pyright: ignore[reportArgumentType]  pydantic checks them
    except ValidationError as error:
        problems = "; ".join(
            f"EXO_{'.'.join(str(part) for part in problem['loc']).upper()}: {without_prefix(problem['msg'])}"
            for problem in error.errors()
        )
        raise Fatal(f"settings: {problems}") from None
