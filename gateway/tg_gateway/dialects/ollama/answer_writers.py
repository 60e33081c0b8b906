"""Records of an answer -> JSON lines, one for each piece, or one JSON body."""

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

import msgspec
from typing_extensions import override

from tg_gateway.dialects import WholeWriter, Writer, is_text_alone, json_line
from tg_gateway.dialects.chat import make_logprobs
from tg_gateway.dialects.ollama.answer_shape import LOADED, AnswerShape, Tail
from tg_gateway.dialects.ollama.failures import encode_failure
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_gateway.dialects.ollama.tool_calls import AnsweredCall, ToolCalls
from tg_schema import FinishReason, TextCompletionResponse, TgError, Token
from tg_schema.deltas import join_text
from tg_schema.errors import ProtocolError

_PIECE: Final = Tail(done=False)


class _Ending:
    """What the records say for the last piece."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._reason: FinishReason = "stop"
        self._prompt_tokens: int | None = None
        self._answer_tokens: int | None = None

    def add(self, record: TextCompletionResponse) -> None:
        if record.index:
            raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
        self._reason = record.finish_reason or self._reason
        if record.in_token is not None:
            self._prompt_tokens = (self._prompt_tokens or 0) + record.in_token
        if record.out_token is not None:
            self._answer_tokens = (self._answer_tokens or 0) + record.out_token

    def tail(self, logprobs: tuple[msgspec.Struct, ...] = ()) -> Tail:
        return Tail.close(
            _name_ending(self._reason), self._watch.read(), self._prompt_tokens, self._answer_tokens, logprobs
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
        calls = self._calls.end()
        rest = json_line(self._shape.write(_PIECE, calls=calls)) if calls else b""
        return rest + json_line(self._shape.write(self._ending.tail()))

    @override
    def fail(self, error: TgError) -> bytes:
        return json_line(encode_failure(error))


class AnswerBodyWriter(WholeWriter[TextCompletionResponse]):
    """The whole answer in one body.

    Args:
        shape: the shape of the body.
        watch: runs since the request came.
        ignored: headers that list what was ignored.
    """

    def __init__(self, shape: AnswerShape, watch: Stopwatch, ignored: Mapping[str, str]) -> None:
        super().__init__(TextCompletionResponse)
        self.headers = ignored
        self._shape = shape
        self._ending = _Ending(watch)

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        calls = ToolCalls()
        answered: list[AnsweredCall] = []
        self._shape.name(records[0].model)
        for record in records:
            self._ending.add(record)
            answered += calls.add(record.tool_calls)
        return self._shape.write(
            self._ending.tail(_read_logprobs([token for record in records for token in record.tokens])),
            join_text(record.response for record in records) or "",
            join_text(record.reasoning for record in records) or None,
            (*answered, *calls.end()),
        )


def _read_logprobs(tokens: Sequence[Token]) -> tuple[msgspec.Struct, ...]:
    made = make_logprobs(tokens)
    return made.content if made else ()


class LoadedWriter(WholeWriter[TextCompletionResponse]):
    """Says that a model is loaded, once its provider has answered.

    Args:
        shape: the shape of the body.
        ignored: headers that list what was ignored.
    """

    def __init__(self, shape: AnswerShape, ignored: Mapping[str, str]) -> None:
        super().__init__(TextCompletionResponse)
        self.headers = ignored
        self._shape = shape

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        return self._shape.write(LOADED)
