"""Records of an answer -> JSON lines, one for each piece, or one JSON body.

Ollama's clients know no pieces of tool calls, and arguments are an object.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Writer, is_text_alone, json_line
from tg_gateway.dialects.chat import add_usage, make_logprobs
from tg_gateway.dialects.ollama.answer_shape import LOADED, AnsweredCall, AnsweredFunction, AnswerShape, Tail
from tg_gateway.dialects.ollama.failures import encode_failure
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import FinishReason, TextCompletionResponse, TgError, Token, ToolCallDelta, Usage, decode
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.deltas import join_text
from tg_schema.errors import BadRequest, ProtocolError, TooLarge
from tg_schema.object_end import ObjectEnd


class _OpenCall:
    """A call whose pieces are still coming."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.end = ObjectEnd()
        self._pieces: list[str] = []

    def add(self, delta: ToolCallDelta) -> None:
        self.id = self.id or delta.id
        self.name = self.name or delta.name or ""
        self._pieces.append(delta.arguments)
        self.end.feed(delta.arguments)

    def read_arguments(self) -> dict[str, Any]:
        text = "".join(self._pieces).strip()
        try:
            return decode(dict[str, Any], text) if text else {}
        except BadRequest:
            sentence = f"the model called {self.name[:64]!r} with arguments that are no JSON object; ask again"
            raise ProtocolError(sentence) from None


class ToolCalls:
    """Gathers the calls of one answer.

    Returns each call once, in order, as soon as it and those before it are whole.
    """

    def __init__(self) -> None:
        self._open: dict[int, _OpenCall] = {}
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
            self._open.setdefault(delta.index, _OpenCall()).add(delta)
        return self.take(all_of_them=False)

    def take(self, *, all_of_them: bool = True) -> tuple[AnsweredCall, ...]:
        """The rest, once the answer has ended; before, those of it that are whole.

        Raises:
            ProtocolError: as `add`.
        """
        taken = []
        for call in list(self._open.values())[self._taken :]:
            if not (all_of_them or call.end.reached):
                break
            taken.append(AnsweredCall(AnsweredFunction(self._taken, call.name, call.read_arguments()), call.id))
            self._taken += 1
        return tuple(taken)


_PIECE: Final = Tail(done=False)


class _Ending:
    """What the records say for the last piece."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._reason: FinishReason = "stop"
        self._total = Usage()

    def add(self, record: TextCompletionResponse) -> None:
        if record.index:
            raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
        self._reason = record.finish_reason or self._reason
        self._total = add_usage(self._total, record)

    def tail(self, logprobs: tuple[msgspec.Struct, ...] = ()) -> Tail:
        took, until_first, since_first = self._watch.read()
        return Tail(
            done=True,
            done_reason=_name_ending(self._reason),
            logprobs=logprobs,
            total_duration=took,
            # The time to load a model on demand is a part of the next duration.
            load_duration=0,
            prompt_eval_duration=until_first,
            eval_duration=since_first,
            prompt_eval_count=self._total.in_token,
            eval_count=self._total.out_token,
        )


def _name_ending(reason: FinishReason) -> str:
    """Ollama's `done_reason`: it knows "stop" and "length" of ours."""
    match reason:
        case "stop" | "tool_calls":
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
        watch: runs since the request came.
        ignored: headers that list what was ignored.
    """

    content_type = "application/x-ndjson"
    # Ollama's clients parse every line as JSON, an empty one too.
    keep_alive = b""
    cut_after_failure = True

    def __init__(self, shape: AnswerShape, watch: Stopwatch, ignored: Mapping[str, str]) -> None:
        self.headers = {**self.headers, **ignored}
        self._shape = shape
        self._watch = watch
        self._begun = False
        self._calls = ToolCalls()
        self._ending = _Ending(watch)

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        if self._begun and is_text_alone(record) and not record.index:
            return json_line(self._shape.write_text(record.response or ""))
        self._ending.add(record)
        calls = self._calls.add(record.tool_calls)
        logprobs = _read_logprobs(record.tokens)
        if not self._begun and (record.response or record.reasoning or record.tool_calls or logprobs):
            self._begun = True
            self._shape.name(record.model)
            self._watch.begin()
        if not (record.response or record.reasoning or calls or logprobs):
            return b""
        tail = Tail(done=False, logprobs=logprobs) if logprobs else _PIECE
        return json_line(self._shape.write(tail, record.response or "", record.reasoning or None, calls))

    @override
    def end(self) -> bytes:
        calls = self._calls.take()
        rest = json_line(self._shape.write(_PIECE, calls=calls)) if calls else b""
        return rest + json_line(self._shape.write(self._ending.tail()))

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode_failure(error))


def encode_answer(records: Sequence[TextCompletionResponse], shape: AnswerShape, watch: Stopwatch) -> bytes:
    """The whole answer in one body of this shape; the watch runs since the request came."""
    calls, ending = ToolCalls(), _Ending(watch)
    answered: list[AnsweredCall] = []
    shape.name(records[0].model)
    for record in records:
        ending.add(record)
        answered += calls.add(record.tool_calls)
    return shape.write(
        ending.tail(_read_logprobs([token for record in records for token in record.tokens])),
        join_text(record.response for record in records) or "",
        join_text(record.reasoning for record in records) or None,
        (*answered, *calls.take()),
    )


def _read_logprobs(tokens: Sequence[Token]) -> tuple[msgspec.Struct, ...]:
    made = make_logprobs(tokens)
    return made.content if made else ()


def encode_loaded(records: Sequence[TextCompletionResponse], shape: AnswerShape) -> bytes:
    """Says that a model is loaded, once its provider has answered."""
    return shape.write(LOADED)
