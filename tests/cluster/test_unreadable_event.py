"""An event that only a newer version can read: no process goes on with half a State."""

import asyncio

from exo.bus.client import connect
from tests.stack import Stack, wait_until


def test_a_process_that_cannot_read_an_event_ends_with_one_line_that_says_where_it_is(stack: Stack) -> None:
    async def intrude() -> int:
        bus = await connect(stack.nats_url, "home", "test")
        try:
            return (
                await bus.js.publish(bus.subjects.event("FromTheFuture"), b'{"event": {"type": "FromTheFuture"}}')
            ).seq
        finally:
            await bus.close()

    position = asyncio.run(intrude())
    for name in ("api", "worker"):
        process = stack.processes[name]
        wait_until(lambda process=process: process.poll() is not None, f"the end of {name}")
        assert process.returncode == 1
        said = stack.output(name)
        assert f"position {position} what this version of exo cannot read" in said
        assert "Traceback" not in said
