"""Models loaded and unloaded, and how long they stay that nobody asks for, as clients say it with each request."""

from exo.api.context import Api
from exo.api.generations import answering
from exo.api.generations.generations import Receive
from exo.api.http.access import is_admin
from exo.api.known.models import known_models
from exo.api.ollama.durations import FOREVER
from exo.bus.inbox import send_command
from exo.domain.ids import ModelId
from exo.domain.messages.commands import LimitIdleTime
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.domain.state import State, instances_of
from exo.errors import Rejected

ONE_TOKEN = GenerationRequest(prompt=".", params=SamplingParams(max_tokens=1))
"""A model is loaded because somebody asks it for something."""
UNLOAD = 3.0
"""Seconds to wait until a model is unloaded; one that still answers others takes longer."""

LEAST = 300.0
"""Seconds that anybody may have a model stay. Ollama's own default."""


def check_keep_alive(seconds: float | None) -> None:
    """Raises Rejected where a key that is for answers alone would take a model away from those who use it too.

    Less than it takes to write the next question is as good as unloading it, which needs the scope `admin`.
    """
    if seconds is None or seconds == FOREVER or seconds >= LEAST or is_admin():
        return
    reason = (
        f"keep_alive: less than {LEAST:.0f} seconds unloads a model that others may use, which needs a key for admin: "
        f"leave it out, or say '{LEAST / 60:.0f}m' or more"
    )
    raise Rejected(reason, code="insufficient_scope", param="keep_alive")


async def keep(api: Api, model_id: ModelId, seconds: float | None) -> None:
    """Have the model unloaded when nobody has asked for it for so long; None leaves that as it is.

    Nothing is sent where State knows already. Raises Retryable where NATS stays away.
    """
    if seconds is None:
        return
    known = api.state.idle_limits.get(model_id)
    wanted = None if seconds == FOREVER else seconds
    if wanted != (known and known.seconds):
        await send_command(api.bus, api.api_id, LimitIdleTime(model_id=model_id, seconds=wanted))


async def load(api: Api, model_id: ModelId, receive: Receive) -> float:
    """Have the model loaded where it is not, and wait for that; the seconds that it took. Raises GenerationFailed where
    it cannot be."""
    _, status = known_models(api.state)[model_id]
    if status == "ready":
        return 0.0
    choices = await answering.start(api, model_id, [ONE_TOKEN], receive)
    await answering.whole(api, choices)
    return choices.loading()


async def unload(api: Api, model_id: ModelId) -> None:
    """Have the model unloaded as soon as it answers nobody."""
    if not instances_of(api.state, model_id):
        return
    await keep(api, model_id, 0.0)

    def is_gone(state: State) -> bool:
        return not instances_of(state, model_id)

    await api.replica.wait_for(is_gone, UNLOAD)
