"""TextCompletionRequest -> the body of Mistral's chat, after its public API reference: a variant of OpenAI's."""

from collections.abc import Iterator
from typing import Any

from tg_base.llm import read_signature, set_fields
from tg_base.telemetry import trace
from tg_flow.providers.openai import continue_chat
from tg_flow.providers.openai import request as openai_request
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.conversation import Part, ReasoningPart

ORIGIN = "mistral"
"""The origin in signatures of Mistral's thinking. The value of such a signature may be empty."""


def to_wire(request: TextCompletionRequest, model: str, sampling: Sampling) -> dict[str, Any]:
    """The body of `POST /v1/chat/completions`.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    asked = openai_request.to_wire(request, model, sampling, completion_tokens=False, strict=False)
    # The API has no `stream_options`, and its sampling seed is `random_seed`.
    theirs = {name: value for name, value in asked.items() if name not in {"stream_options", "seed"}}
    more = set_fields(random_seed=sampling.seed, prompt_cache_key=trace.own_cache_key(request.cache_key))
    body = theirs | more
    turns = request.turns
    # Count from the end, because the instructions come before the turns.
    for message, turn in zip(body["messages"][-len(turns) :], turns, strict=True):
        if thoughts := [thought for part in turn.parts for thought in _thinking(part)]:
            text = message.get("content")
            message["content"] = [*thoughts, *([{"type": "text", "text": text}] if text else [])]
    return continue_chat(body, request, "prefix") if request.continuation else body


def _thinking(part: Part) -> Iterator[dict[str, Any]]:
    signature = read_signature(part.signature, ORIGIN) if isinstance(part, ReasoningPart) else None
    if isinstance(part, ReasoningPart) and signature is not None:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}
        yield {**thought, "signature": signature} if signature else thought
