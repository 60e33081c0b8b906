"""The `model` of a body -> the flow that has it."""

from tg_gateway.dialects import Call, FoundModel
from tg_gateway.dialects.openai.failures import InvalidParameter


def find_asked_model(call: Call, model: str | None) -> FoundModel:
    """What a body's `model` means; from here on the log names its flow.

    Raises:
        InvalidParameter: the body names none.
        NotFound: there is no such model.
    """
    if not model:
        raise InvalidParameter("model is missing: name one of GET /v1/models", "model", "missing_required_parameter")
    found = call.catalogue.find_model(model)
    call.route = found.route
    return found
