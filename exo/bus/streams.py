"""The streams and buckets, declared as data and brought about at start."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from nats.js import JetStreamContext
from nats.js.api import (
    KeyValueConfig,
    ObjectStoreConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, NotFoundError

from exo.bus.subjects import Subjects
from exo.errors import Fatal

INBOX, EVENTS, TASKS, REQUESTS, CHUNKS = "INBOX", "EVENTS", "TASKS", "REQUESTS", "CHUNKS"
LEASE, GAUGES, BLOBS = "LEASE", "GAUGES", "BLOBS"
NAMES = (INBOX, EVENTS, TASKS, REQUESTS, CHUNKS, f"KV_{LEASE}", f"KV_{GAUGES}", f"OBJ_{BLOBS}")
"""Of all streams, as the server has them; the server may carry others, which are none of ours."""

HOUR = 3600.0
LEASE_TTL = 3.0
"""Seconds after which a silent master's lease is free."""
GAUGES_TTL = 10.0
"""Seconds after which a silent node's figures are gone."""
EVENTS_KEPT = 100_000
"""The newest events, in the stream. Every master's log has all, and gives them to whoever is further behind."""
DUPLICATE_WINDOW = 120.0
"""Seconds within which the server drops a message that was sent twice; the log's own check has no end."""

_NEVER = datetime.min.replace(tzinfo=UTC)


def stream_configs(subjects: Subjects) -> Sequence[StreamConfig]:
    """The five streams, as in the design's table."""
    return (
        StreamConfig(
            name=INBOX,
            subjects=[subjects.all_of("cmd"), subjects.all_of("report")],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            duplicate_window=DUPLICATE_WINDOW,
        ),
        event_stream_config(subjects),
        StreamConfig(
            name=TASKS,
            subjects=[subjects.all_of("task")],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=24 * HOUR,
            duplicate_window=DUPLICATE_WINDOW,
        ),
        StreamConfig(
            name=REQUESTS,
            subjects=[subjects.all_of("request")],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_msgs_per_subject=1,
            max_age=HOUR,
            allow_direct=True,
            duplicate_window=DUPLICATE_WINDOW,
        ),
        StreamConfig(
            name=CHUNKS,
            subjects=[subjects.all_of("chunk")],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.MEMORY,
            max_age=HOUR,
            max_bytes=256 * 2**20,
            duplicate_window=DUPLICATE_WINDOW,
        ),
    )


def event_stream_config(subjects: Subjects, first_seq: int | None = None) -> StreamConfig:
    """`EVENTS`. `first_seq` makes a new one go on where the log in SQLite ends."""
    return StreamConfig(
        name=EVENTS,
        subjects=[subjects.all_of("event")],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        max_msgs=EVENTS_KEPT,
        allow_direct=True,
        allow_atomic=True,
        first_seq=first_seq,
        duplicate_window=DUPLICATE_WINDOW,
    )


BUCKETS = (
    KeyValueConfig(bucket=LEASE, ttl=LEASE_TTL, storage=StorageType.MEMORY),
    KeyValueConfig(bucket=GAUGES, ttl=GAUGES_TTL, storage=StorageType.MEMORY),
)

BLOB_STORE = ObjectStoreConfig(bucket=BLOBS, ttl=HOUR, storage=StorageType.FILE)


async def ensure_streams(js: JetStreamContext, subjects: Subjects) -> None:
    """Create what is missing and bring what is there to its declared shape. Any process may do it at any time.

    Raises Fatal where the server carries another cluster.
    """
    for config in stream_configs(subjects):
        await _ensure_stream(js, config)
    for bucket in BUCKETS:
        await js.create_key_value(config=bucket)
    await js.create_object_store(bucket=BLOBS, config=BLOB_STORE)


async def incarnations(js: JetStreamContext) -> Mapping[str, datetime]:
    """When each stream, and each bucket's, was made. One that was deleted and made anew has another time."""
    present = {info.config.name or "": info.created or _NEVER for info in await js.streams_info()}
    return {name: present[name] for name in NAMES if name in present}


async def _ensure_stream(js: JetStreamContext, wanted: StreamConfig) -> None:
    assert wanted.name is not None and wanted.subjects is not None  # declared above
    try:
        present = (await js.stream_info(wanted.name)).config
    except NotFoundError:
        await _add_stream(js, wanted)
        return
    if set(present.subjects or ()) != set(wanted.subjects):
        raise Fatal(
            f"the NATS server carries another cluster: its stream {wanted.name} holds {present.subjects}. "
            "Set EXO_CLUSTER to that cluster's name, or EXO_NATS_URL to another server"
        )
    if _differs(present, wanted):
        await js.update_stream(wanted.evolve(first_seq=present.first_seq))


async def _add_stream(js: JetStreamContext, wanted: StreamConfig) -> None:
    try:
        await js.add_stream(wanted)
    except BadRequestError:
        # Another process was quicker; if it is not that, this raises what is wrong.
        await js.stream_info(wanted.name or "")


def _differs(present: StreamConfig, wanted: StreamConfig) -> bool:
    fields = (
        "max_age",
        "max_msgs",
        "max_msgs_per_subject",
        "max_bytes",
        "allow_direct",
        "allow_atomic",
        "duplicate_window",
    )
    return any(_limit(present, field) != _limit(wanted, field) for field in fields)


def _limit(config: StreamConfig, field: str) -> float:
    """0 for none, which the server also writes as -1."""
    value = getattr(config, field)
    return 0 if value in (None, -1) else value
