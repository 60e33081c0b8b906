"""Records of an answer -> Anthropic's events, or one JSON body: a whole message, or a count of tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from tg_base.telemetry import new_id
from tg_gateway.dialects import Tally, Writer, is_text_alone
from tg_gateway.dialects.anthropic.block_sequence import BlockSequence
from tg_gateway.dialects.anthropic.failures import MESSAGES_FIELDS, encode_failure_event
from tg_gateway.dialects.anthropic.signatures import wrap_call_signature
from tg_gateway.dialects.anthropic.wire import (
    PING,
    AnswerBlock,
    AnswerMessage,
    MessageDelta,
    MessageStart,
    MessageStop,
    TextBlock,
    ThinkingBlock,
    TokenCount,
    ToolUseBlock,
    describe_ending,
    describe_usage,
    encode_event,
)
from tg_schema import TextCompletionResponse, TgError, ToolCallDelta, encode, try_decode
from tg_schema.errors import ProtocolError


class MessageForm(msgspec.Struct, frozen=True):
    """The parameters from which a `StreamWriter` can be made again."""

    model: str
    request_id: str
    name: str


class StreamWriter(Writer[TextCompletionResponse]):
    """`message_start`, the blocks one after the other, `message_delta` with the usage, `message_stop`.

    A failure is an `error` event, after which the body breaks: the SDK takes an orderly end for a whole answer.

    Args:
        model: the model's name, until a record has it.
        request_id: the id of the request, for the event of a failure.
        name: the message's id; None = a new one.
    """

    keep_alive = PING
    cut_after_failure = True
    fields = MESSAGES_FIELDS

    def __init__(self, model: str, request_id: str, name: str | None = None) -> None:
        self.form = MessageForm(model, request_id, name or f"msg_{new_id()}")
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
        # The blocks are closed first: in Anthropic's order `message_delta` follows the last block's end.
        ending = MessageDelta(describe_ending(self._tally), describe_usage(self._tally.usage))
        return self._blocks.end() + encode_event(ending) + encode_event(MessageStop())

    @override
    def fail(self, error: TgError) -> bytes:
        return encode_failure_event(error, self.form.request_id)

    def _start(self) -> bytes:
        self._started = True
        usage = describe_usage(self._tally.usage)
        message = AnswerMessage(self.form.name, self._tally.model or self.form.model, usage)
        return encode_event(MessageStart(message))


INVALID_ARGUMENTS = "INVALID_JSON"
"""The only field of a call's input whose arguments are no JSON object; its value is their text."""


def encode_message(records: Sequence[TextCompletionResponse], model: str) -> bytes:
    """The whole answer; `model` is the model's name, if no record has it."""
    tally = Tally()
    blocks: list[AnswerBlock] = []
    for record in records:
        tally.add(record)
        blocks += _list_blocks(record)
    ending, usage = describe_ending(tally), describe_usage(tally.usage)
    name, answered = f"msg_{new_id()}", tuple(blocks)
    return encode(AnswerMessage(name, tally.model or model, usage, answered, ending.stop_reason, ending.stop_sequence))


def encode_count(records: Sequence[TextCompletionResponse]) -> bytes:
    """The number of tokens.

    Raises:
        ProtocolError: the number is not known.
    """
    counts = [record.in_token for record in records if record.in_token is not None]
    if not counts:
        raise ProtocolError("the model's service counted no tokens")
    return encode(TokenCount(sum(counts)))


def _list_blocks(record: TextCompletionResponse) -> Iterator[AnswerBlock]:
    if record.reasoning or record.signature:
        yield ThinkingBlock(record.reasoning or "", record.signature or "")
    if record.response:
        yield TextBlock(record.response)
    for call in record.tool_calls:
        yield from _convert_call(call)


def _convert_call(call: ToolCallDelta) -> Iterator[AnswerBlock]:
    name = call.id or f"toolu_{new_id()}"
    if call.signature:
        yield ThinkingBlock(signature=wrap_call_signature(name, call.signature))
    yield ToolUseBlock(name, call.name or "", _read_input(call.arguments))


def _read_input(arguments: str) -> msgspec.Raw | dict[str, Any]:
    if not arguments.strip():
        return {}
    if try_decode(dict[str, Any], arguments) is None:
        return {INVALID_ARGUMENTS: arguments}
    # Pass the model's own JSON on: decoding and encoding it could change large numbers.
    return msgspec.Raw(arguments.encode())
