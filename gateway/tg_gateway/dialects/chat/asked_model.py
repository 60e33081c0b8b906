"""The `model` of a body -> the flow that has it."""

from typing import Final

from tg_gateway.dialects import Call, Catalogue, FoundModel, InvalidParameter
from tg_schema.errors import NotFound

PLACEHOLDERS: Final = frozenset({"tgi", "dummy"})
"""What TGI's clients (`text-generation`, `huggingface_hub`) send as the model of a chat, since their server has one.

Each stands for the default flow's model, unless a model has that name.
"""


def find_asked_model(call: Call, model: str | None, *, required: bool = True) -> FoundModel:
    """What a body's `model` means; from here on the log names its flow.

    Args:
        call: the request.
        model: what the body says.
        required: whether it must name one; otherwise it is the default flow's.

    Raises:
        InvalidParameter: the body names none.
        NotFound: there is no such model.
    """
    if required and not model:
        raise InvalidParameter("model is missing: name one of GET /v1/models", "model", "missing_required_parameter")
    found = _find(call.catalogue, model)
    call.route = found.route
    return found


def _find(catalogue: Catalogue, model: str | None) -> FoundModel:
    try:
        return catalogue.find_model(model)
    except NotFound:
        if model in PLACEHOLDERS:
            return catalogue.find_model(None)
        raise
