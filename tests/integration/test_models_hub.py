"""Downloads by the real hub client from a small server that speaks the hub's few endpoints on a free port."""

import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from safetensors.numpy import save

from exo.domain.ids import ModelId
from exo.domain.model_card import HubSource
from exo.errors import Rejected
from exo.models.catalog import embedded
from exo.models.hub import download, needed_files
from exo.models.progress import Cancelled, Progress
from exo.models.store import Store
from exo.models.vector_form import read_vector_form

SHA = "1234567890abcdef1234567890abcdef12345678"
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
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
SOURCE = HubSource(repository="owner/model")


@dataclass
class Hub:
    """What the server has, and what was asked of it. `hold`: weights stop after half until it is set."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    fetched: list[tuple[str, str | None]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    half_sent: threading.Event = field(default_factory=threading.Event)
    status: int = 200
    announced: str = ""
    url: str = ""


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
        if path.startswith("/api/models/owner/model/tree/"):
            rows = [
                {"type": "file", "path": name, "size": len(data), "oid": SHA} for name, data in self.hub.files.items()
            ]
            return self.answer(200, json.dumps(rows).encode(), Content_Type="application/json")
        if path.startswith("/api/models/owner/model"):
            names = [{"rfilename": name, "size": len(data)} for name, data in self.hub.files.items()]
            body = {"id": "owner/model", "sha": SHA, "siblings": names}
            return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")
        found = re.fullmatch(rf"/owner/model/resolve/{SHA}/(.+)", path)
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


@pytest.fixture
def hub() -> Generator[Hub]:
    state = Hub()
    state.hold.set()
    handler = type("BoundHandler", (Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    state.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_the_needed_files_come(hub: Hub, tmp_path: Path) -> None:
    seen: list[Progress] = []
    download(SOURCE, tmp_path / "model", seen.append, endpoint=hub.url)
    expected = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == expected
    assert needed_files(list(FILES)) == expected
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    total = sum(len(FILES[name]) for name in expected)
    assert seen[-1] == Progress("verifying", total, total)


def test_the_store_prepares_a_model_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    card = embedded().model_copy(update={"model_id": ModelId("owner/model"), "sources": (SOURCE,), "license": "mit"})
    store = Store(tmp_path / "models", cards=(card,), hub_endpoint=hub.url)
    assert [held.status for held in store.holdings()] == ["obtainable"]
    assert store.prepare(card) == tmp_path / "models" / "owner--model"
    (held,) = store.holdings()
    assert (held.status, held.card.layers, held.card.license) == ("ready", 2, "mit")
    assert held.card.sources == (SOURCE,)


def test_a_cancelled_download_is_resumed_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.hold.clear()
    seen: list[Progress] = []

    def half_arrived() -> bool:
        return hub.half_sent.is_set() and bool(seen) and seen[-1].done_bytes > CHUNK_BYTES

    with pytest.raises(Cancelled):
        download(SOURCE, tmp_path / "model", seen.append, endpoint=hub.url, cancelled=half_arrived)
    hub.hold.set()
    download(SOURCE, tmp_path / "model", endpoint=hub.url)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    again = [asked for name, asked in hub.fetched if name == "model.safetensors"]
    assert again[0] is None
    assert str(again[-1]).startswith("bytes=")


def test_what_the_model_says_of_its_vectors_comes_along(hub: Hub, tmp_path: Path) -> None:
    hub.files["1_Pooling/config.json"] = b'{"pooling_mode_lasttoken": true}'
    hub.files["2_Dense/config.json"] = b"{}"
    download(SOURCE, tmp_path / "model", endpoint=hub.url)
    assert read_vector_form(tmp_path / "model").pooling == "last"
    assert not (tmp_path / "model" / "2_Dense").exists()


def test_files_of_another_revision_are_not_mixed_in(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / ".revision").write_text("an older commit")
    (folder / "config.json").write_text("{}")
    (folder / "vocab.json").write_text("{}")
    download(SOURCE, folder, endpoint=hub.url)
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
    assert sorted(path.name for path in folder.iterdir()) == needed_files(list(FILES))


def test_content_that_differs_from_what_the_hub_announces_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.announced = "0" * 64
    with pytest.raises(Rejected, match="came with other content than the hub announces"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_too_little_disk_is_refused_before_the_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"downloading owner/model needs [\d,]+ bytes in .*, and 10 are free"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url, free=lambda _folder: 10)
    assert hub.fetched == []


def test_a_repository_without_weights_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files = {name: data for name, data in FILES.items() if not name.endswith(".safetensors")}
    with pytest.raises(Rejected, match="has no safetensors weights"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_weights_that_are_cut_on_the_hub_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files["model.safetensors"] = FILES["model.safetensors"][:-8]
    with pytest.raises(Rejected, match=r"no complete model: .*model\.safetensors has [\d,]+ bytes of [\d,]+"):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


@pytest.mark.parametrize(
    ("status", "message"), [(401, "asks for a licence: accept it"), (404, "is not on the hub, or is private")]
)
def test_a_refusal_of_the_hub_is_told_with_what_to_do(hub: Hub, tmp_path: Path, status: int, message: str) -> None:
    hub.status = status
    with pytest.raises(Rejected, match=message):
        download(SOURCE, tmp_path / "model", endpoint=hub.url)


def test_a_hub_that_cannot_be_reached_is_told_with_the_networks_reason(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"^the hub cannot be reached \(.*Connect.*EXO_OFFLINE=1 .*trying$"):
        download(SOURCE, tmp_path / "model", endpoint="http://127.0.0.1:9")
