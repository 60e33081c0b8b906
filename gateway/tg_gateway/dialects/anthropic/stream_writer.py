"""Records of an answer -> Anthropic's events."""

from collections.abc import Mapping

from typing_extensions import override

from tg_base.telemetry import new_id
from tg_gateway.dialects import Writer, is_text_alone
from tg_gateway.dialects.anthropic.block_sequence import BlockSequence
from tg_gateway.dialects.anthropic.failures import encode_failure_event
from tg_gateway.dialects.anthropic.usage import Tally
from tg_gateway.dialects.anthropic.wire import (
    PING,
    AnswerMessage,
    Ending,
    MessageDelta,
    MessageStart,
    MessageStop,
    encode_event,
)
from tg_schema import TextCompletionResponse, TgError


class StreamWriter(Writer[TextCompletionResponse]):
    """`message_start`, the blocks one after the other, `message_delta` with the usage, `message_stop`.

    A failure is an `error` event, after which the body breaks: the SDK takes an orderly end for a whole answer.

    Args:
        model: the model's name, until a record has it.
        request_id: the id of the request, for the event of a failure.
        headers: the headers of the answer, besides those of every stream.
    """

    keep_alive = PING
    cut_after_failure = True

    def __init__(self, model: str, request_id: str, headers: Mapping[str, str]) -> None:
        self.headers = {**Writer.headers, **headers}
        self._model = model
        self._request_id = request_id
        self._started = False
        self._tally = Tally()
        self._blocks = BlockSequence()

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        # Fast path: nearly every record has only text, which changes neither the counts nor the stop reason.
        if self._started and is_text_alone(record):
            return self._blocks.add_text(record.response or "")
        self._tally.add(record)
        data = b"" if self._started else self._start()
        blocks = self._blocks
        if record.reasoning:
            data += blocks.add_thinking(record.reasoning)
        if record.signature:
            data += blocks.sign(record.signature)
        if record.response:
            data += blocks.add_text(record.response)
        for delta in record.tool_calls:
            data += blocks.add_call(delta)
        return data

    @override
    def end(self) -> bytes:
        tally = self._tally
        # The blocks are closed first: in Anthropic's order `message_delta` follows the last block's end.
        ending = MessageDelta(Ending(tally.stop_reason, tally.stop_sequence), tally.usage)
        return self._blocks.end() + encode_event(ending) + encode_event(MessageStop())

    @override
    def fail(self, error: TgError) -> bytes:
        return encode_failure_event(error, self._request_id)

    def _start(self) -> bytes:
        self._started = True
        message = AnswerMessage(f"msg_{new_id()}", self._tally.model or self._model, self._tally.usage)
        return encode_event(MessageStart(message))
