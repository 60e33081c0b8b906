"""A chat in OpenAI's shape, and back: MLC's clients have the arguments of a whole call as an object, not as text.

Source: the example of function calling in MLC-LLM's REST API, and `ChatFunctionCall` of its protocol.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Writer
from tg_gateway.dialects.openai import ChatCompletion, WholeCall, WholeChoice, WholeFunction, WholeMessage
from tg_gateway.dialects.output import Output, join_output
from tg_schema import TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import BadRequest


class ParsedFunction(WholeFunction, frozen=True):
    """What the model calls; arguments that are no JSON object, as of an answer that was cut, stay a text."""

    arguments: str | dict[str, Any]  # type: ignore[assignment]


class ParsedCall(WholeCall, frozen=True):
    """A whole call."""

    function: ParsedFunction


class ParsedMessage(WholeMessage, frozen=True):
    """The message of a choice."""

    tool_calls: tuple[ParsedCall, ...] = ()


class ParsedChoice(WholeChoice, frozen=True):
    """One answer."""

    message: ParsedMessage


class ParsedChat(ChatCompletion, frozen=True):
    """The body of a whole answer, as `ParsedCallsWriter` leaves it."""

    choices: tuple[ParsedChoice, ...]


class ParsedCallsWriter(Writer[TextCompletionResponse]):
    """The body of a whole chat with objects in place of the texts of arguments.

    Args:
        writer: of the same body in OpenAI's shape.
    """

    keep_alive = b""

    def __init__(self, writer: Writer[TextCompletionResponse]) -> None:
        self.content_type, self.headers = writer.content_type, writer.headers
        self._writer = writer
        self._calls = False

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        self._calls = self._calls or bool(record.tool_calls)
        return self._writer.write(record)

    @override
    def end(self) -> Output:
        told = self._writer.end()
        return parse_arguments(join_output(told)) if self._calls else told

    @override
    def fail(self, error: TgError) -> Output:
        return self._writer.fail(error)


def parse_arguments(body: bytes) -> bytes:
    """The body of a chat with an object for each text of arguments that has one."""
    chat = decode(dict[str, Any], body)
    for function in _find_functions(choice["message"] for choice in chat["choices"]):
        try:
            function["arguments"] = decode(dict[str, Any], function["arguments"])
        except BadRequest:
            continue
    return encode(chat)


def write_arguments(messages: bytes) -> bytes:
    """The JSON of a conversation with a text for each object of arguments; what is wrong in it stays as it is."""
    turns = msgspec.json.decode(messages)
    for function in _find_functions(turns if isinstance(turns, list) else ()):
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = encode(function["arguments"]).decode()
    return encode(turns)


def _find_functions(messages: Any) -> Iterator[dict[str, Any]]:
    for message in messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield function
