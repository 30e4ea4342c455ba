"""Names of models as Ollama has them, with a tag. exo has one version of each model, which is the latest."""

from exo.api.known.models import find_model
from exo.domain.ids import ModelId
from exo.domain.model_card import ModelCard
from exo.domain.state import State

TAG = ":latest"


def tagged(model_id: ModelId) -> str:
    """What a model is listed as. Clients that are given a name without a tag add this one."""
    return f"{model_id}{TAG}"


def find_tagged(state: State, name: str) -> ModelCard:
    """The card of a model by its full or short name, with the tag or without. Raises as `find_model`."""
    return find_model(state, name.removesuffix(TAG))
