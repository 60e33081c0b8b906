"""What can be asked -> OpenAI's list of models."""

import msgspec

from tg_gateway.dialects import Catalogue
from tg_gateway.dialects.openai.answer_style import OWNER
from tg_schema import encode
from tg_schema.errors import NotFound


class Model(msgspec.Struct, frozen=True):
    """One model. When it was made is not known, and OpenAI's description requires a time: it is 0."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = OWNER


class ModelList(msgspec.Struct, frozen=True):
    """All models."""

    data: tuple[Model, ...]
    object: str = "list"


def encode_models(catalogue: Catalogue, owner: str) -> bytes:
    """Exactly the names that can be asked now."""
    return encode(ModelList(tuple(Model(name, owned_by=owner) for name in catalogue.models())))


def encode_model(catalogue: Catalogue, name: str, owner: str) -> bytes:
    """One of them, or an adapter of one (`base:adapter`).

    Raises:
        NotFound: it is not among those that can be asked now.
    """
    listed = catalogue.models()
    if name not in listed and catalogue.find_model(name).model not in listed:
        raise NotFound("no live processor has this model; ask again later, or ask another model")
    return encode(Model(name, owned_by=owner))
