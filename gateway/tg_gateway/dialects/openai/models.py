"""What can be asked -> OpenAI's list of models."""

import msgspec

from tg_gateway.dialects import Catalogue, FoundModel
from tg_gateway.dialects.chat import OWNER
from tg_schema import encode
from tg_schema.errors import NotFound
from tg_schema.served_model import RoutedModel


class Model(msgspec.Struct, frozen=True):
    """One model. OpenAI's description requires a creation time; it is unknown, so it is 0.

    A LoRA adapter has vLLM's fields too: `parent` is its base model, and `root` is where it was loaded from.
    Three fields are ours: `features`, what requests may ask of it, `loading`, whether the next one would wait until it
    is loaded, and `route`, the models that may answer in place of a route.
    """

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = OWNER
    root: str | msgspec.UnsetType = msgspec.UNSET
    parent: str | msgspec.UnsetType = msgspec.UNSET
    features: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    loading: bool | msgspec.UnsetType = msgspec.UNSET
    route: tuple[RoutedModel, ...] | msgspec.UnsetType = msgspec.UNSET


class ModelList(msgspec.Struct, frozen=True):
    """All models."""

    data: tuple[Model, ...]
    object: str = "list"


def encode_models(catalogue: Catalogue, owner: str) -> bytes:
    """Exactly the names that can be asked now, adapters last."""
    models = [_describe(name, found, owner) for name, found in catalogue.find_served().items()]
    return encode(ModelList((*models, *_list_adapters(catalogue, owner))))


def encode_model(catalogue: Catalogue, name: str, owner: str) -> bytes:
    """One of the models, or an adapter of one (`base:adapter`).

    Raises:
        NotFound: the model is not among those that can be asked now.
    """
    listed = catalogue.models()
    if adapter := next((each for each in _list_adapters(catalogue, owner) if each.id == name), None):
        return encode(adapter)
    found = catalogue.find_model(name)
    if name not in listed and found.model not in listed:
        raise NotFound("no live processor has this model; ask again later, or ask another model")
    route = catalogue.explain(found.route.plan) if found.route.plan else ()
    return encode(msgspec.structs.replace(_describe(name, found, owner), route=route or msgspec.UNSET))


def _describe(name: str, found: FoundModel, owner: str) -> Model:
    # The features of a plain peer are unknown.
    features = tuple(sorted(found.features)) or msgspec.UNSET
    return Model(name, owned_by=owner, features=features, loading=found.loading or msgspec.UNSET)


def _list_adapters(catalogue: Catalogue, owner: str) -> tuple[Model, ...]:
    adapters = catalogue.adapters()
    return tuple(Model(each.name, owned_by=owner, root=each.root, parent=each.base) for each in adapters)
