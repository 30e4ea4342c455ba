"""The API's process: a web server, a connection to NATS, and a copy of State."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from exo.api.app import create_app
from exo.api.cluster.health import reasons_against
from exo.api.context import Api
from exo.api.default_model import DefaultModel
from exo.api.feed import Feed
from exo.api.generations.generations import Generations
from exo.api.http.access import Keys
from exo.api.http.exposure import is_exposed, refuse_without_key
from exo.api.http.file_limit import raise_file_limit
from exo.api.http.front import Front
from exo.api.http.hosts import Hosts, allowed_hosts
from exo.api.http.server import Server, bind
from exo.api.hub import Hub
from exo.api.loading import Loading
from exo.api.metrics.ends import Ends
from exo.api.metrics.meters import Meters
from exo.api.ollama.at_root import with_ollama_at_root
from exo.api.progress import log_progress
from exo.bus.address import without_password
from exo.bus.beats import subscribe_all_beats
from exo.bus.client import connect, new_id
from exo.bus.gauges import subscribe_gauges
from exo.bus.replica import following
from exo.config import Settings
from exo.domain.ids import ApiId

logger = logging.getLogger(__name__)

LAST_SECONDS = 1.5
"""For the web server to end; then its connections are dropped."""


async def run_api(settings: Settings) -> None:
    """Run until cancelled, then end within two seconds, whatever is open. Raises Fatal where it cannot go on."""
    raise_file_limit()
    listener = bind(settings.api_host, settings.api_port)
    meters = Meters()
    front = Front(f"NATS at {without_password(settings.nats_url)}", meters)
    server = Server(front)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    exposed = is_exposed(listener)
    keys = Keys(is_locked=exposed and not settings.api_insecure)
    hosts = allowed_hosts(settings.api_host, settings.allowed_hosts, is_exposed=exposed)
    working = asyncio.create_task(_work(settings, front, server, meters, keys, hosts))
    try:
        await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, serving):
            if task.done():
                task.result()
    finally:
        server.should_exit = True
        working.cancel()
        await asyncio.wait({serving, working}, timeout=LAST_SECONDS)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        listener.close()


async def _work(settings: Settings, front: Front, server: Server, meters: Meters, keys: Keys, hosts: Hosts) -> None:
    bus = await connect(settings.nats_url, settings.cluster, "api")
    try:
        async with following(bus) as replica:
            api_id = ApiId(new_id())
            loading = Loading()
            generations = Generations(bus, api_id, replica, settings.log_prompts, loading, meters)
            feed, hub = Feed(bus, replica), Hub(offline=settings.offline)
            api = Api(settings, bus, api_id, replica, generations, feed, loading, meters, keys, hosts, hub)
            try:
                await generations.begin()
                await subscribe_gauges(bus, api.take_gauges)
                await subscribe_all_beats(bus, lambda beat: loading.take(beat, replica.state))
                replica.listen(log_progress)
                replica.listen(Ends(api_id, meters).listen)
                app = create_app(api)
                front.app = with_ollama_at_root(app) if settings.ollama_at_root else app
                if keys.is_locked:
                    await refuse_without_key(replica, settings.api_host)
                logger.info("listening at http://%s:%d", settings.api_host, settings.api_port)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(generations.watch_time())
                    tasks.create_task(generations.show_life())
                    tasks.create_task(DefaultModel(settings, bus, api_id, partial(reasons_against, api)).run(replica))
            finally:
                server.should_exit = True
                api.readers.close()
                await generations.close()
    finally:
        await bus.close()
