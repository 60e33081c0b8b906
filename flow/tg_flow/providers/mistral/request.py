"""TextCompletionRequest -> the arguments of Mistral's chat, after its public API reference: nearly OpenAI's."""

from typing import Any

import msgspec

from tg_flow.providers.openai import request as openai_request
from tg_schema import Sampling, TextCompletionRequest


def to_wire(request: TextCompletionRequest, model: str, sampling: Sampling) -> dict[str, Any]:
    """The arguments of the SDK's `chat.stream_async`.

    Raises:
        BadRequest: the request has a form that this API does not know; the message says which.
    """
    asked = openai_request.to_wire(request, model, sampling, completion_tokens=False, strict=True)
    theirs = msgspec.structs.replace(asked, stream_options=None, seed=None)
    body: dict[str, Any] = msgspec.to_builtins(theirs)
    if sampling.seed is not None:
        body["random_seed"] = sampling.seed
    return body
