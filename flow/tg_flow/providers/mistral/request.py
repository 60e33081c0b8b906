"""TextCompletionRequest -> the arguments of Mistral's chat, after its public API reference: a variant of OpenAI's."""

from typing import Any

import msgspec

from tg_flow.providers.openai import request as openai_request
from tg_schema import Sampling, TextCompletionRequest


def to_wire(request: TextCompletionRequest, model: str, sampling: Sampling) -> dict[str, Any]:
    """The arguments of the SDK's `chat.stream_async`.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    asked = openai_request.to_wire(request, model, sampling, completion_tokens=False, strict=True)
    # The SDK's method refuses unknown arguments: it has no `stream_options`, and its sampling seed is `random_seed`.
    theirs = msgspec.structs.replace(asked, stream_options=None, seed=None)
    body: dict[str, Any] = msgspec.to_builtins(theirs)
    if sampling.seed is not None:
        body["random_seed"] = sampling.seed
    return body
