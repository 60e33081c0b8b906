"""A chat in OpenAI's shape, and back: MLC's clients have the arguments of a whole call as an object, not as text.

Source: the example of function calling in MLC-LLM's REST API, and `ChatFunctionCall` of its protocol.
"""

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from tg_gateway.dialects import Output, WrappingWriter, join_output
from tg_gateway.dialects.chat import ChatCompletion, WholeCall, WholeChoice, WholeFunction, WholeMessage
from tg_schema import TextCompletionResponse, decode, encode
from tg_schema.errors import BadRequest


class ParsedFunction(WholeFunction, frozen=True):
    """What the model calls; arguments that are no JSON object, as of an answer that was cut, stay a text."""

    arguments: str | dict[str, Any]  # type: ignore[assignment]


class ParsedCall(WholeCall, frozen=True):
    """A whole call."""

    function: ParsedFunction


class ParsedMessage(WholeMessage, frozen=True):
    """The message of a choice; MLC's clients look for `tool_calls` where there are none, too."""

    tool_calls: tuple[ParsedCall, ...] | None = None  # type: ignore[assignment]


class ParsedChoice(WholeChoice, frozen=True):
    """One answer."""

    message: ParsedMessage


class ParsedChat(ChatCompletion, frozen=True):
    """The body of a whole answer, as `ParsedCallsWriter` leaves it."""

    choices: tuple[ParsedChoice, ...]


class ParsedCallsWriter(WrappingWriter[TextCompletionResponse]):
    """The body of a whole chat with objects in place of the texts of arguments.

    Args:
        writer: the writer of the same body in OpenAI's shape.
    """

    @override
    def end(self) -> Output:
        return parse_arguments(join_output(super().end()))


def parse_arguments(body: bytes) -> bytes:
    """The body of a chat with an object for each text of arguments that has one, and `tool_calls` in each message."""
    chat = decode(dict[str, Any], body)
    for choice in chat["choices"]:
        choice["message"].setdefault("tool_calls", None)
    for function in _find_functions(choice["message"] for choice in chat["choices"]):
        try:
            function["arguments"] = decode(dict[str, Any], function["arguments"])
        except BadRequest:
            continue
    return encode(chat)


def write_arguments(messages: bytes) -> bytes:
    """The JSON of a conversation with a text for each object of arguments; a wrong shape stays as it is.

    Raises:
        BadRequest: it is no JSON that can be read, for instance for a number that is too large.
    """
    turns = decode(object, messages)
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
