"""Answers in OpenAI's shape -> MLC's: a text at the end of each choice, and arguments of whole calls as objects.

Sources: MLC-LLM's server repeats a completion's `suffix` after its text, and streams calls as the text of its model.
Arguments: the example of function calling in its REST API, and `ChatFunctionCall` of its protocol.
"""

from collections.abc import Iterator, Sequence
from keyword import iskeyword
from typing import Any

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Output, WrappingWriter, Writer, append_output, join_output
from tg_gateway.dialects.chat import ChatCompletion, WholeCall, WholeChoice, WholeFunction, WholeMessage
from tg_schema import FinishReason, TextCompletionResponse, ToolCallDelta, decode, encode, try_decode
from tg_schema.answer_collector import AnswerCollector
from tg_schema.conversation import whole_calls


class LateTextWriter(WrappingWriter[TextCompletionResponse]):
    """Wraps another writer, and adds `late_text` at the end of each choice.

    Args:
        writer: the writer of the answer in OpenAI's shape.
        choices: the number of its choices.
        text: the late text, such as a completion's suffix.
    """

    def __init__(self, writer: Writer[TextCompletionResponse], choices: int, text: str = "") -> None:
        super().__init__(writer)
        self._open = set(range(choices))
        self._text = text

    def late_text(self, index: int) -> str:
        """The last text of the choice with this index; called once for each choice."""
        return self._text

    def guess_reason(self, index: int) -> FinishReason | None:
        """The finish reason of a choice without one; None = the other writer guesses. Asked before the text."""
        return None

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        if record.finish_reason is not None and record.index in self._open:
            self._open.remove(record.index)
            text = (record.response or "") + self.late_text(record.index)
            record = msgspec.structs.replace(record, response=text)
        return super().write(record)

    @override
    def end(self) -> Output:
        told: Output = b""
        # No record said how these choices ended.
        for index in sorted(self._open):
            reason = self.guess_reason(index)
            record = TextCompletionResponse(response=self.late_text(index), index=index, finish_reason=reason)
            told = append_output(told, self._writer.write(record))
        return append_output(told, super().end())


class SpelledCallsWriter(LateTextWriter):
    """Calls come as the last text of their choice, when they are whole; a stream without calls is not changed.

    Raises:
        TooLarge: by `write`: the calls are larger than an answer may be.
    """

    def __init__(self, writer: Writer[TextCompletionResponse], choices: int) -> None:
        super().__init__(writer, choices)
        self._calls: dict[int, AnswerCollector[TextCompletionResponse]] = {}

    @override
    def write(self, record: TextCompletionResponse) -> Output:
        if record.tool_calls:
            calls = self._calls.setdefault(record.index, AnswerCollector(TextCompletionResponse.join))
            calls.add(TextCompletionResponse(tool_calls=record.tool_calls))
            record = msgspec.structs.replace(record, tool_calls=())
        return super().write(record)

    @override
    def guess_reason(self, index: int) -> FinishReason | None:
        return "tool_calls" if index in self._calls else None

    @override
    def late_text(self, index: int) -> str:
        calls = self._calls.pop(index, None)
        if calls is None:
            return ""
        return spell_calls(whole_calls(call for record in calls.records() for call in record.tool_calls))


def spell_calls(calls: Sequence[ToolCallDelta]) -> str:
    """A list of texts, each a call in Python with the arguments by name; JSON and Python read it alike."""
    return encode([_spell(call) for call in calls]).decode()


def _spell(call: ToolCallDelta) -> str:
    arguments = try_decode(dict[str, Any], call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        # Arguments that were cut off are no object: pass them on as the model wrote them.
        return f"{call.name}({call.arguments})"
    # Python accepts no keyword as an argument's name: a flight's "from" would make an unreadable call.
    if not all(name.isidentifier() and not iskeyword(name) for name in arguments):
        return f"{call.name}(**{arguments!r})"
    return f"{call.name}({','.join(f'{name}={value!r}' for name, value in arguments.items())})"


class ParsedFunction(WholeFunction, frozen=True):
    """The called function; arguments that are not a JSON object, as in an answer that was cut, stay a text."""

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
        if (arguments := try_decode(dict[str, Any], function["arguments"])) is not None:
            function["arguments"] = arguments
    return encode(chat)


def write_arguments(messages: bytes) -> bytes:
    """The JSON of a conversation with a text for each object of arguments; a wrong shape stays as it is.

    Raises:
        BadRequest: it is not readable JSON, for instance because a number is too large.
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
