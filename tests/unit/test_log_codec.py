"""Events to rows and back. What was logged once must be readable for ever: the bodies below never change."""

import hashlib
import json

import pytest
from pydantic import ValidationError

from exo.domain.messages.events import Compacted, Entry, NodeLost, Recorded
from exo.domain.messages.reports import RunnerStatusSeen
from exo.log import codec
from exo.log.codec import GENESIS, StoredEvent, Undecodable

FACTS = (
    '"hostname":"h","system":"linux","chip":"x","cores":8,"memory_bytes":1,"disk_bytes":1,'
    '"interfaces":[{"name":"eth0","addresses":["10.0.0.1"],"speed_mbit":1000}],'
    '"gpus":[{"name":"g","total_bytes":1,"unified":true}],"engines":["mlx"],"version":"0.1.0"'
)
LATER_FACTS = (
    ',"probe_port":52416,"rdma_enabled":true,'
    '"thunderbolt":[{"interface":"en5","rdma_device":"rdma_en5","domain":"d","peer_domain":"e"}],'
    '"machine":{"model":"NVIDIA DGX Spark","kind":"desktop"},"engine_facts":[{"name":"vllm","runs":true,'
    '"device":"gpu","machines":2,"packages":[{"name":"vllm","version":"0.32.0"}],"problem":"p"}],"gpu_problem":"q"'
)
"""Fields that version 2 has besides."""
CARD = (
    '{"model_id":"a/b","family":"llama","layers":1,"hidden_size":1,"heads":1,"kv_heads":1,"head_dim":1,'
    '"weight_bytes":1,"context":1,"quantization":"4bit","quantized_by":"mlx","supports_tensor":false,"license":"","abilities":[],'
    '"sources":[{"type":"folder","path":"/m"},{"type":"hub","repository":"a/b","revision":"main"},'
    '{"type":"wheel","package":"p","version":"1","file":"f","sha256":"0","bytes":1}]}'
)
NODE_1 = f'"facts":{{{FACTS}}},"available_bytes":1,"holdings":[{{"card":{CARD},"status":"ready"}}]'
NODE = (
    NODE_1.replace(FACTS, FACTS + LATER_FACTS)
    .replace("1000}", '1000,"kind":"wifi"}')
    .replace('"ready"', '"ready","held":0.5')
    + ',"damaged":[{"model_id":"maker/other","reason":"its weights are cut off"}]'
)
LINK = '{"to":"m","kind":"ethernet","address":"10.0.0.2","device":"","round_trip_ms":0.5}'
SHARD = (
    '{"runner_id":"r","node_id":"n","rank":0,"world_size":1,"start_layer":0,"end_layer":1,'
    f'"sharding":"pipeline","card":{CARD}'
)
INSTANCE_1 = f'{{"instance_id":"i","card":{CARD},"engine":"mlx","shards":[{SHARD}}}],"context":1,"slots":1}}'
INSTANCE = (
    f'{{"instance_id":"i","card":{CARD},"engine":"mlx","shards":[{SHARD},"host":"10.0.0.1"}}],"context":1,"slots":1,'
    '"backend":"ring","rdma_devices":[["","rdma_en5"]],"coordinators":["10.0.0.1"]}'
)
USAGE_1 = '"usage":{"prompt_tokens":1,"completion_tokens":2,"cached_tokens":0}'
USAGE = '"usage":{"prompt_tokens":1,"completion_tokens":2,"cached_tokens":0,"reasoning_tokens":1}'
ENDING = '"timings":{"wait":0.1,"prefill":0.2,"decode":0.3},"code":"","error":"","output":null'
PREFILL = '"prefill":{"instance_id":"i","tokens":900,"asked_after":0.1,"seconds":0.5,"error":""}'
QUEUED = '"task_id":"t","model_id":"a/b","estimated_tokens":1'
REJECTED = '"command":"PlaceInstance","code":"c","reason":"r"'
FIELDS = {
    "MasterElected": '"node_id":"n","epoch":1',
    "NodeJoined": f'"node_id":"n","boot_id":"b",{NODE}',
    "NodeChanged": f'"node_id":"n",{NODE}',
    "NodeLinksChanged": f'"node_id":"n","links":[{LINK}]',
    "NodeLost": '"node_id":"n","reason":"r"',
    "DownloadRequested": '"node_id":"n","model_id":"a/b"',
    "DownloadCancelled": '"node_id":"n","model_id":"a/b"',
    "DownloadStarted": '"node_id":"n","model_id":"a/b"',
    "DownloadFinished": '"node_id":"n","model_id":"a/b"',
    "DownloadFailed": '"node_id":"n","model_id":"a/b","reason":"r"',
    "RemovalRequested": '"node_id":"n","model_id":"a/b"',
    "ModelRemoved": f'"node_id":"n","model_id":"a/b","holding":{{"card":{CARD},"status":"obtainable","held":0.0}}',
    "RemovalFailed": '"node_id":"n","model_id":"a/b","reason":"r"',
    "ModelAdded": f'"card":{CARD}',
    "ModelForgotten": '"model_id":"a/b"',
    "InstancePlaced": f'"instance":{INSTANCE},"reason":"r","min_nodes":2,"required_nodes":["n"]',
    "InstanceDeleted": '"instance_id":"i","reason":"r"',
    "InstanceFailed": '"instance_id":"i","reason":"r"',
    "RunnerStarted": '"runner_id":"r","process":"p"',
    "RunnerJoining": '"runner_id":"r","port":17200',
    "RunnerLoading": '"runner_id":"r"',
    "RunnerWarming": '"runner_id":"r"',
    "RunnerReady": '"runner_id":"r","tokens_per_second":1.5',
    "RunnerFailed": '"runner_id":"r","reason":"r","retry_at":1.5',
    "RunnerStopped": '"runner_id":"r"',
    "GenerationQueued": f'{QUEUED},"key":"k","client":"c","reply_to":"a","prompt":null,"gives":"vectors",'
    '"needs_reader":false',
    "GenerationDispatched": '"task_id":"t","instance_id":"i"',
    "CancellationRequested": '"task_id":"t","reason":"r"',
    "GenerationFinished": f'"task_id":"t","finish_reason":"stop",{USAGE},{ENDING},{PREFILL}',
    "KeyCreated": f'"key":"k","digest":"{"0f" * 32}","scopes":["inference"]',
    "IdleTimeLimited": '"model_id":"a/b","seconds":300.0',
    "InstancesLinked": '"prefill_id":"i","decode_id":"j"',
    "InstancesUnlinked": '"prefill_id":"i","decode_id":"j","reason":"r"',
    "KeyRevoked": '"key":"k"',
    "CommandRejected": f'{REJECTED},"retry_after":5',
    "Compacted": "0f" * 32,
}
"""The fields of one body of each type, as today's version writes them; of a compacted row the whole body."""
EARLIER = {
    ("NodeJoined", 1): f'"node_id":"n","boot_id":"b",{NODE_1}',
    ("NodeChanged", 1): f'"node_id":"n",{NODE_1}',
    ("InstancePlaced", 1): f'"instance":{INSTANCE_1},"reason":"r"',
    ("GenerationFinished", 1): f'"task_id":"t","finish_reason":"stop",{USAGE_1},{ENDING}',
    ("GenerationFinished", 2): f'"task_id":"t","finish_reason":"stop",{USAGE},{ENDING}',
    ("GenerationQueued", 1): f'{QUEUED},"key":"k","reply_to":"a","prompt":null',
    ("CommandRejected", 1): REJECTED,
}
"""The fields of bodies that earlier versions wrote."""


def row(event_type: str = "NodeLost", **changes: object) -> StoredEvent:
    fields = FIELDS[event_type]
    version = codec.VERSIONS[event_type]
    body = fields if event_type == "Compacted" else f'{{"type":"{event_type}","version":{version},{fields}}}'
    return StoredEvent(7, 1.5, event_type, version, "cause", "source", body, "")._replace(**changes)


def recorded(position: int = 1, recorded_at: float = 1.5, reason: str = "r") -> Recorded:
    event = NodeLost(node_id="n", reason=reason)
    return Recorded(position=position, entry=Entry(recorded_at=recorded_at, cause_id=None, source="s", event=event))


def test_every_type_of_event_has_a_body_here() -> None:
    assert FIELDS.keys() == codec.VERSIONS.keys()


@pytest.mark.parametrize("event_type", FIELDS)
def test_bodies_that_were_logged_are_read_and_written_the_same(event_type: str) -> None:
    (event,) = codec.decode([row(event_type)])
    assert codec.encode(event, GENESIS).body == row(event_type).body


@pytest.mark.parametrize(("event_type", "version"), EARLIER)
def test_what_an_earlier_version_wrote_is_read_as_of_today(event_type: str, version: int) -> None:
    body = f'{{"type":"{event_type}","version":{version},{EARLIER[event_type, version]}}}'
    (event,) = codec.decode([row(event_type)._replace(version=version, body=body)])
    encoded = codec.encode(event, GENESIS)
    assert encoded.version == codec.VERSIONS[event_type]
    assert json.loads(body).keys() <= json.loads(encoded.body).keys()
    assert codec.decode([encoded]) == [event]


def body_of(stored: StoredEvent) -> codec.StoredBody:
    return stored.position, stored.recorded_at, stored.type, stored.version, stored.body


def test_a_replay_gets_the_events_that_a_reader_gets() -> None:
    rows = [row(event_type, position=position) for position, event_type in enumerate(FIELDS, start=1)]
    assert [*codec.timed(map(body_of, rows))] == [
        (one.position, one.entry.recorded_at, one.entry.event) for one in codec.decode(rows)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        *({"recorded_at": time} for time in ("x", b"\0", None, -0.5, float("inf"), float("nan"))),
        {"body": "{}"},
        {"body": b"\xff"},
        {"type": "NodeJoined"},
        {"type": "Unheard", "version": 3},
    ],
)
def test_a_replay_stops_where_a_reader_does(changes: dict[str, object]) -> None:
    rows = [row(position=1), row(position=2)._replace(**changes)]
    with pytest.raises(Undecodable) as read:
        codec.decode(rows)
    events = codec.timed(map(body_of, rows))
    assert next(events)[0] == 1
    with pytest.raises(Undecodable) as replayed:
        next(events)
    assert replayed.value.position == read.value.position == 2


def test_a_row_keeps_everything() -> None:
    original = recorded(reason='ä\0"\\\n\u2028')
    encoded = codec.encode(original, GENESIS)
    assert (encoded.position, encoded.type, encoded.version, encoded.cause_id) == (1, "NodeLost", 1, None)
    assert codec.decode([encoded]) == [original]


def test_the_chain_is_a_digest_of_the_chain_before_and_of_the_rows_own() -> None:
    encoded = codec.encode(recorded(), "0f" * 32)
    text = json.dumps([1, "1.5", None, "s", encoded.body], separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    assert codec.row_digest(encoded) == digest
    assert encoded.chain == hashlib.sha256(("0f" * 32 + digest).encode("ascii")).hexdigest()
    assert codec.follows(encoded, "0f" * 32)


def test_the_first_chain_never_changes() -> None:
    assert codec.encode(recorded(), GENESIS).chain == "c1c1ad47c05708eb37dcf13825cd03b33830e44e3c4c1ae126cbc89f90842b4f"


def test_a_field_cannot_pass_for_its_neighbour() -> None:
    assert codec.digest(1, 1.5, "a", "b", "c") != codec.digest(1, 1.5, 'a","b', "", "c")
    assert codec.digest(1, 1.5, None, "b", "c") != codec.digest(1, 1.5, "null", "b", "c")


def test_a_compacted_row_keeps_its_place_its_time_and_the_chain() -> None:
    first, second = codec.encode(recorded(), GENESIS), codec.encode(recorded(2), "0f" * 32)
    row = codec.compacted(second)
    assert (row.type, row.version, row.cause_id, row.source) == ("Compacted", 1, None, "")
    assert (row.body, row.chain) == (codec.row_digest(second), second.chain)
    assert codec.follows(row, "0f" * 32) and not codec.follows(row, GENESIS)
    assert codec.compacted(row) == row
    (decoded,) = codec.decode([row])
    entry = Entry(recorded_at=1.5, cause_id=None, source="", event=Compacted(digest=row.body))
    assert decoded == Recorded(position=2, entry=entry)
    assert codec.encode(decoded, "0f" * 32) == row
    assert codec.compacted(first).chain == first.chain


@pytest.mark.parametrize(
    "changes",
    [{"body": "0" * 64}, {"body": "0" * 63}, {"body": "G" * 64}, {"body": None}, {"cause_id": "c"}, {"source": "s"}],
)
def test_a_compacted_row_that_was_changed_does_not_follow(changes: dict[str, object]) -> None:
    row = codec.compacted(codec.encode(recorded(), GENESIS))
    assert codec.follows(row, GENESIS)
    assert not codec.follows(row._replace(**changes), GENESIS)


def test_a_compacted_row_without_a_digest_is_damaged() -> None:
    row = codec.compacted(codec.encode(recorded(), GENESIS))
    with pytest.raises(Undecodable, match=r"at position 1 \(Compacted\) is damaged"):
        codec.decode([row._replace(body="no digest")])


def test_a_time_of_minus_zero_survives_sqlite() -> None:
    encoded = codec.encode(recorded(recorded_at=-0.0), GENESIS)
    assert codec.follows(encoded._replace(recorded_at=0.0), GENESIS)


@pytest.mark.parametrize("changes", [{"type": "GenerationDreamt"}, {"version": 2}])
def test_what_a_newer_version_wrote_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Undecodable, match=r"at position 7 .* was written by a newer version: upgrade exo"):
        codec.decode([row(), row(**changes)])


@pytest.mark.parametrize(
    "changes",
    [
        {"body": "{"},
        {"body": row("RunnerLoading").body},
        {"body": '{"type":"NodeLost","version":1,"node_id":"n","reason":"r","more":1}'},
        {"recorded_at": "yesterday"},
        {"recorded_at": -1.0},
        {"source": None},
        {"version": "x"},
        {"version": None},
    ],
)
def test_what_is_damaged_is_refused_with_its_position(changes: dict[str, object]) -> None:
    with pytest.raises(Undecodable, match=r"at position 9 .*is damaged") as refused:
        codec.decode([row(), row(position=9, **changes), row(position=10)])
    assert refused.value.position == 9


def test_an_older_version_is_lifted_step_by_step() -> None:
    old = row(version=-1, body='{"type":"NodeLost","version":-1,"id":"n"}')
    upcasters: codec.Upcasters = {
        ("NodeLost", -1): lambda body: {"type": "NodeLost", "version": 0, "node": body["id"]},
        ("NodeLost", 0): lambda body: {"type": "NodeLost", "version": 1, "node_id": body["node"], "reason": ""},
    }
    (lifted,) = codec.decode([old], upcasters)
    assert lifted.entry.event == NodeLost(node_id="n", reason="")
    with pytest.raises(Undecodable, match=r"NodeLost version -1\) is older than what this version reads"):
        codec.decode([old], {})


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999"])
def test_a_report_of_a_number_that_json_lacks_is_refused(number: str) -> None:
    status = f'{{"type":"ready","tokens_per_second":{number}}}'
    with pytest.raises(ValidationError):
        RunnerStatusSeen.model_validate_json(f'{{"runner_id":"r","process":"p","status":{status}}}')
