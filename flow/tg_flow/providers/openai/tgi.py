"""TextCompletionRequest -> Hugging Face's text-generation-inference -> LlmChunks, by its Messages API.

Its Messages API is OpenAI's chat completions with differences. Its own `/generate_stream` takes one text, into which
system text and turns would have to be glued here, without the model's template; and no tools.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from typing_extensions import override

from tg_flow.providers.openai.provider import ChatCompletions, OpenAiOptions
from tg_schema import Message, TextCompletionRequest
from tg_schema.features import Feature


class TgiOptions(OpenAiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As of any server that speaks OpenAI's chat completions.

    Attributes:
        upstream_model: "tgi" for the server's model itself, or the id of one of its adapters.
    """

    without: frozenset[Feature] = frozenset({"top_k", "json", "penalties"})
    base_url_variables: tuple[str, ...] = ("TGI_BASE_URL",)
    default_base_url: str | None = "http://localhost:8080/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("TGI_API_KEY",)
    key_needed: bool = False
    upstream_model: str | None = "tgi"


class Tgi(ChatCompletions[TgiOptions]):
    """A server of text-generation-inference, 3.0 or later."""

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        messages = tuple(part for turn in request.messages for part in _split_turn(turn))
        body = super().body(msgspec.structs.replace(request, messages=messages, schema=None))
        if request.schema is None:
            return body
        shape = msgspec.json.encode({"response_format": {"type": "json_object", "value": request.schema}})
        return body[:-1] + b"," + shape[1:]


def _split_turn(turn: Message) -> Iterable[Message]:
    """Text and calls as turns of their own: of a message with both, the server leaves out the calls."""
    if not turn.tool_calls or not turn.content:
        return (turn,)
    return Message(turn.role, turn.content), msgspec.structs.replace(turn, content="")
