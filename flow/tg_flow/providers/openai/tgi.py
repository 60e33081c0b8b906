"""TextCompletionRequest -> Hugging Face's text-generation-inference -> LlmChunks, by its Messages API.

The Messages API is a variant of OpenAI's chat completions. The server's own `/generate_stream` takes a single text: it
would bypass the model's chat template, and has no tools.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from typing_extensions import override

from tg_flow.providers.openai.provider import OPENAI_FEATURES, ChatCompletions, OpenAiOptions
from tg_schema import Message, TextCompletionRequest
from tg_schema.features import Feature


class TgiOptions(OpenAiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As `OpenAiOptions`.

    Attributes:
        upstream_model: "tgi" for the server's base model, or the id of one of its adapters.
    """

    without: frozenset[Feature] = OPENAI_FEATURES | {"top_k", "json", "penalties"}
    base_url_variables: tuple[str, ...] = ("TGI_BASE_URL",)
    default_base_url: str | None = "http://localhost:8080/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("TGI_API_KEY",)
    key_needed: bool = False
    upstream_model: str | None = "tgi"


class Tgi(ChatCompletions[TgiOptions]):
    """A server of text-generation-inference, 3.0 or later."""

    optional_features = frozenset()

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        messages = tuple(part for turn in request.messages for part in _split_turn(turn))
        body = super().body(msgspec.structs.replace(request, messages=messages, schema=None))
        if request.schema is None:
            return body
        # The server has a response format of its own for schemas: "json_object" with a `value`.
        shape = msgspec.json.encode({"response_format": {"type": "json_object", "value": request.schema}})
        return body[:-1] + b"," + shape[1:]


def _split_turn(turn: Message) -> Iterable[Message]:
    """Split a turn with text and calls in two: the server drops the calls of a message that has both."""
    if not turn.tool_calls or not turn.content:
        return (turn,)
    return Message(turn.role, turn.content), msgspec.structs.replace(turn, content="")
