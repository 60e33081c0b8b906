"""Records of an answer -> one JSON body: a whole message, or a count of tokens."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from tg_base.telemetry import new_id
from tg_gateway.dialects import WholeWriter
from tg_gateway.dialects.anthropic.signatures import wrap_call_signature
from tg_gateway.dialects.anthropic.usage import Tally
from tg_gateway.dialects.anthropic.wire import (
    AnswerBlock,
    AnswerMessage,
    TextBlock,
    ThinkingBlock,
    TokenCount,
    ToolUseBlock,
)
from tg_schema import TextCompletionResponse, ToolCallDelta, decode, encode
from tg_schema.errors import BadRequest, ProtocolError

INVALID_ARGUMENTS = "INVALID_JSON"
"""The only field of a call's input whose arguments are no JSON object; its value is their text."""


class MessageWriter(WholeWriter[TextCompletionResponse]):
    """The whole answer.

    Args:
        model: the model's name, if no record has it.
        headers: the headers of the answer.
    """

    def __init__(self, model: str, headers: Mapping[str, str]) -> None:
        super().__init__(TextCompletionResponse)
        self.headers = headers
        self._model = model

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        tally = Tally()
        blocks: list[AnswerBlock] = []
        for record in records:
            tally.add(record)
            blocks += _list_blocks(record)
        return encode(
            AnswerMessage(
                f"msg_{new_id()}",
                tally.model or self._model,
                tally.usage,
                tuple(blocks),
                tally.stop_reason,
                tally.stop_sequence,
            )
        )


class CountWriter(WholeWriter[TextCompletionResponse]):
    """The number of tokens.

    Args:
        headers: the headers of the answer.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(TextCompletionResponse)
        self.headers = headers

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
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
    try:
        decode(dict[str, Any], arguments)
    except BadRequest:
        return {INVALID_ARGUMENTS: arguments}
    # Pass the model's own JSON on: decoding and encoding it could change large numbers.
    return msgspec.Raw(arguments.encode())
