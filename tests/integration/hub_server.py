"""A small server that speaks the hub's few endpoints, on a free port of this machine."""

import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
from safetensors.numpy import save

SHA = "1234567890abcdef1234567890abcdef12345678"
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "torch_dtype": "float32",
}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": save({"a": np.arange(8_000_000, dtype=np.float32)}),
    "consolidated.safetensors": b"the same again",
    "pytorch_model.bin": b"another format",
    "README.md": b"words",
    "original/model.safetensors": b"another layout",
    "metal/model.bin": b"another layout",
}
CHUNK_BYTES = 10_000_000
"""The client writes to disk in pieces of 10 MB; the weights are 32 MB."""
REPOSITORY = "owner/model"


@dataclass
class Hub:
    """What the server has, and what was asked of it. `hold`: weights stop after half until it is set."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    fetched: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    hold: threading.Event = field(default_factory=threading.Event)
    half_sent: threading.Event = field(default_factory=threading.Event)
    status: int = 200
    announced: str = ""
    url: str = ""
    found: tuple[dict[str, object], ...] = (
        {"id": REPOSITORY, "downloads": 7, "likes": 2, "lastModified": "2026-01-02T03:04:05.000Z", "tags": ["mlx"]},
        {"id": "other/model-2", "downloads": 3, "likes": 0, "lastModified": "2026-01-02T03:04:05.000Z", "tags": []},
    )
    """What a search finds."""
    searched: list[dict[str, list[str]]] = field(default_factory=list[dict[str, list[str]]])
    """The parameters of each."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": SHA, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.hub.status != 200:
            code = {401: "GatedRepo", 404: "RepoNotFound"}.get(self.hub.status, "")
            return self.answer(self.hub.status, b"{}", X_Error_Code=code)
        path = self.path.partition("?")[0]
        if path == "/api/models":
            self.hub.searched.append(parse_qs(urlsplit(self.path).query))
            return self.answer(200, json.dumps(self.hub.found).encode(), Content_Type="application/json")
        if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            rows = [
                {"type": "file", "path": name, "size": len(data), "oid": SHA} for name, data in self.hub.files.items()
            ]
            return self.answer(200, json.dumps(rows).encode(), Content_Type="application/json")
        if path.startswith(f"/api/models/{REPOSITORY}"):
            names = [{"rfilename": name, "size": len(data)} for name, data in self.hub.files.items()]
            body = {"id": REPOSITORY, "sha": SHA, "siblings": names, "tags": ["mlx", "license:mit"]}
            return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")
        if path.startswith("/api/models/"):
            return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        found = re.fullmatch(rf"/{REPOSITORY}/resolve/{SHA}/(.+)", path)
        if found is None or found[1] not in self.hub.files:
            return self.answer(404, b"", X_Error_Code="EntryNotFound")
        return self.send_file(found[1], self.hub.files[found[1]])

    def send_file(self, name: str, data: bytes) -> None:
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if self.command == "GET":
            self.hub.fetched.append((name, asked))
        body = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{self.hub.announced or hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            half = len(body) // 2 if name.endswith("model.safetensors") and not self.hub.hold.is_set() else len(body)
            self.wfile.write(body[:half])
            self.wfile.flush()
            if half < len(body):
                self.hub.half_sent.set()
                self.hub.hold.wait(30)
                with suppress(OSError):  # the client is gone: that is what the test is about
                    self.wfile.write(body[half:])
                self.close_connection = True


@contextmanager
def hub_server() -> Generator[Hub]:
    """A running one."""
    state = Hub()
    state.hold.set()
    handler = type("BoundHandler", (Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        state.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
