"""Records of an answer -> JSON lines, one for each piece, or one JSON body.

Ollama's clients know no pieces of tool calls, and arguments are an object.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from typing_extensions import override

from tg_gateway.dialects import Tally, Writer, is_text_alone, json_line
from tg_gateway.dialects.chat import TokenLogprob, make_logprobs, too_many
from tg_gateway.dialects.ollama.answer_shape import LOADED, AnsweredCall, AnsweredFunction, AnswerShape
from tg_gateway.dialects.ollama.failures import encode_failure
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import FinishReason, TextCompletionResponse, TgError, Token, ToolCallDelta, try_decode
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.conversation import whole_calls
from tg_schema.deltas import join_text
from tg_schema.errors import ProtocolError, TooLarge
from tg_schema.object_end import ObjectEnd


class ToolCalls:
    """Gathers the calls of one answer.

    Returns each call once, in order, as soon as it and those before it are whole.
    """

    def __init__(self) -> None:
        self._pieces = defaultdict[int, list[ToolCallDelta]](list)
        self._ends = defaultdict[int, ObjectEnd](ObjectEnd)
        self._taken = 0
        self._size = 0

    def add(self, deltas: Iterable[ToolCallDelta]) -> tuple[AnsweredCall, ...]:
        """The calls that are whole now.

        Raises:
            ProtocolError: the arguments of one are no object.
            TooLarge: all of them are larger than an answer may be.
        """
        for delta in deltas:
            self._size += len(delta.arguments)
            if self._size > MAX_ANSWER_BYTES:
                raise TooLarge("the model's tool calls are larger than an answer may be; ask for less")
            self._pieces[delta.index].append(delta)
            self._ends[delta.index].feed(delta.arguments)
        return self.take(all_of_them=False)

    def take(self, *, all_of_them: bool = True) -> tuple[AnsweredCall, ...]:
        """The rest of the calls, once the answer has ended; before its end, only those that are whole.

        Raises:
            ProtocolError: as `add`.
        """
        taken = []
        for index, pieces in list(self._pieces.items())[self._taken :]:
            if not (all_of_them or self._ends[index].reached):
                break
            (call,) = whole_calls(pieces)
            taken.append(AnsweredCall(AnsweredFunction(self._taken, call.name or "", _read_arguments(call)), call.id))
            self._taken += 1
        return tuple(taken)


def _read_arguments(call: ToolCallDelta) -> dict[str, Any]:
    arguments = try_decode(dict[str, Any], call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        name = (call.name or "")[:64]
        raise ProtocolError(f"the model called {name!r} with arguments that are no JSON object; ask again")
    return arguments


class _Ending(Tally):
    """What the last piece says, summed up over all records."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self._watch = watch

    @override
    def add(self, record: TextCompletionResponse) -> None:
        if record.index:
            raise too_many()
        super().add(record)

    def tail(self) -> dict[str, Any]:
        took, until_first, since_first = self._watch.read()
        return {
            "done": True,
            "done_reason": _name_ending(self.finish_reason),
            "total_duration": took,
            # The time to load a model on demand is a part of the next duration.
            "load_duration": 0,
            "prompt_eval_duration": until_first,
            "eval_duration": since_first,
            "prompt_eval_count": self.usage.in_token,
            "eval_count": self.usage.out_token,
        }


def _name_ending(reason: FinishReason | None) -> str:
    """Ollama's `done_reason`: of our reasons it has only "stop" and "length"."""
    match reason:
        case "stop" | "tool_calls" | None:
            return "stop"
        case "length" | "content_filter":
            return reason
        case _:
            assert_never(reason)


class AnswerLineWriter(Writer[TextCompletionResponse]):
    """JSON lines. The last one has `"done":true`; a failed answer's last one is an error, which Ollama's clients raise.

    After an error the connection is broken off: Open WebUI ignores such a line, and takes an orderly end for a whole
    answer.

    Args:
        shape: which of Ollama's shapes the lines have.
        watch: runs since the request arrived.
    """

    content_type = "application/x-ndjson"
    # Ollama's clients parse every line as JSON, an empty one too.
    keep_alive = b""
    cut_after_failure = True

    def __init__(self, shape: AnswerShape, watch: Stopwatch) -> None:
        self._shape = shape
        self._watch = watch
        self._begun = False
        self._calls = ToolCalls()
        self._ending = _Ending(watch)

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        if self._begun and is_text_alone(record) and not record.index:
            return json_line(self._shape.write(record.response or ""))
        self._ending.add(record)
        calls = self._calls.add(record.tool_calls)
        logprobs = _read_logprobs(record.tokens)
        if not self._begun and (record.response or record.reasoning or record.tool_calls or logprobs):
            self._begun = True
            self._shape.name(record.model)
            self._watch.begin()
        if not (record.response or record.reasoning or calls or logprobs):
            return b""
        return json_line(self._shape.write(record.response or "", record.reasoning or None, calls, logprobs=logprobs))

    @override
    def end(self) -> bytes:
        calls = self._calls.take()
        rest = json_line(self._shape.write(calls=calls)) if calls else b""
        return rest + json_line(self._shape.write(**self._ending.tail()))

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode_failure(error))


def encode_answer(records: Sequence[TextCompletionResponse], shape: AnswerShape, watch: Stopwatch) -> bytes:
    """The whole answer in one body of this shape; the watch runs since the request arrived."""
    calls, ending = ToolCalls(), _Ending(watch)
    answered: list[AnsweredCall] = []
    shape.name(records[0].model)
    for record in records:
        ending.add(record)
        answered += calls.add(record.tool_calls)
    return shape.write(
        join_text(record.response for record in records) or "",
        join_text(record.reasoning for record in records) or None,
        (*answered, *calls.take()),
        logprobs=_read_logprobs([token for record in records for token in record.tokens]),
        **ending.tail(),
    )


def _read_logprobs(tokens: Sequence[Token]) -> tuple[TokenLogprob, ...]:
    made = make_logprobs(tokens)
    return made.content if made else ()


def encode_loaded(records: Sequence[TextCompletionResponse], shape: AnswerShape) -> bytes:
    """Says that a model is loaded, once its provider has answered."""
    return shape.write(**LOADED)
