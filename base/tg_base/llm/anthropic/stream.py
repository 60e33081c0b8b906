"""Anthropic's events -> LlmChunks: decodes one streamed message, after the public API reference ("Streaming").

Only the fields that are used are declared; all others are skipped.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from tg_base.llm import ErrorDetail, LlmChunk, UsageDeltas, event_error, write_signature
from tg_base.llm.anthropic.blocks import REDACTED_THINKING, THINKING
from tg_base.llm.anthropic.request import ANSWER_TOOL
from tg_schema import FinishReason, ModelInfo, ToolCallDelta, Usage
from tg_schema.deltas import Count

_FINISH: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _OutputDetails(msgspec.Struct, frozen=True, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct, frozen=True):
    model: str | None = None
    usage: _Usage | None = None


class _ContentBlock(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    id: str | None = None
    name: str | None = None
    data: str | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


_NO_DELTA = _Delta()


class _Fault(msgspec.Struct, frozen=True, gc=False):
    type: str | None = None


class Event(msgspec.Struct, frozen=True):
    """One event of a stream; unknown types are ignored, as the reference demands."""

    type: str
    index: int = 0
    delta: _Delta | None = None
    message: _Message | None = None
    content_block: _ContentBlock | None = None
    usage: _Usage | None = None
    error: _Fault | None = None


class _Model(msgspec.Struct, frozen=True):
    id: str
    created_at: str = ""


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...] = ()


class _TokenCount(msgspec.Struct, frozen=True):
    input_tokens: Count


_decode = msgspec.json.Decoder(Event).decode


def error_detail(body: bytes) -> ErrorDetail:
    """The error code in an error's body; "" if it has none."""
    fault = _decode(body).error
    return ErrorDetail(fault.type or "" if fault else "")


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models of `GET /v1/models`."""
    listed = msgspec.json.decode(body, type=_Models).data
    return tuple(ModelInfo(model.id, "anthropic", _seconds(model.created_at)) for model in listed)


def token_count(body: bytes) -> int:
    """The tokens of `POST /v1/messages/count_tokens`."""
    return msgspec.json.decode(body, type=_TokenCount).input_tokens


def _seconds(date: str) -> int:
    try:
        return int(datetime.fromisoformat(date).timestamp())
    except ValueError:
        return 0


class StreamDecoder:
    """Events in, chunks out.

    Attributes:
        done: whether the message is complete.
    """

    def __init__(self, *, by_tool: bool = False) -> None:
        """With `by_tool` the input of `ANSWER_TOOL` is the answer's text."""
        self.done = False
        self._by_tool = by_tool
        self._counts = UsageDeltas()
        self._model: str | None = None
        self._stop_reason: str | None = None
        self._stopped_by: str | None = None
        self._calls: dict[int, int] = {}
        self._without_arguments: set[int] = set()
        self._signatures: dict[int, str] = {}
        self._answer_block = -1

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None for an event without content, for instance a ping.

        Raises:
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        event = _decode(data)
        # After the stop reason there is no content: a server that sends more must not extend a finished answer.
        match event.type:
            case "content_block_delta" if self._stop_reason is None:
                return self._delta(event.index, event.delta or _NO_DELTA)
            case "content_block_start" if self._stop_reason is None:
                return self._block(event.index, event.content_block or _ContentBlock())
            case "content_block_stop":
                return self._end_block(event.index)
            case "error":
                raise event_error(event.error.type if event.error else None)
            case _:
                return self._of_message(event)

    def _delta(self, index: int, delta: _Delta) -> LlmChunk | None:
        if delta.text:
            return LlmChunk(delta.text, model=self._model)
        if delta.thinking:
            return LlmChunk(reasoning=delta.thinking, model=self._model)
        if delta.signature:
            self._signatures[index] = self._signatures.get(index, "") + delta.signature
        if not delta.partial_json:
            return None
        if index == self._answer_block:
            return LlmChunk(delta.partial_json, model=self._model)
        call = self._calls.get(index)
        if call is None:
            return None
        self._without_arguments.discard(index)
        return self._convert_call(ToolCallDelta(call, arguments=delta.partial_json))

    def _block(self, index: int, block: _ContentBlock) -> LlmChunk | None:
        if block.type == "redacted_thinking" and block.data:
            return LlmChunk(signature=write_signature(REDACTED_THINKING, block.data), model=self._model)
        if block.type != "tool_use":
            return None
        if self._by_tool and block.name == ANSWER_TOOL:
            self._answer_block = index
            return None
        call = self._calls[index] = len(self._calls)
        self._without_arguments.add(index)
        return self._convert_call(ToolCallDelta(call, block.id, block.name))

    def _end_block(self, index: int) -> LlmChunk | None:
        """Emit a block's signature; complete a call without arguments, for which the API sends no delta."""
        signature = self._signatures.pop(index, None)
        if signature is not None:
            return LlmChunk(signature=write_signature(THINKING, signature), model=self._model)
        if index not in self._without_arguments:
            return None
        return self._convert_call(ToolCallDelta(self._calls[index], arguments="{}"))

    def _convert_call(self, delta: ToolCallDelta) -> LlmChunk:
        return LlmChunk(tool_calls=(delta,), model=self._model)

    def _of_message(self, event: Event) -> LlmChunk | None:
        match event.type:
            case "message_start" if event.message is not None:
                self._model = event.message.model
                return self._convert_usage(event.message.usage)
            case "message_delta":
                delta = event.delta or _NO_DELTA
                self._stop_reason = delta.stop_reason or self._stop_reason
                self._stopped_by = delta.stop_sequence or self._stopped_by
                return self._convert_usage(event.usage)
            case "message_stop":
                self.done = True
                return LlmChunk(model=self._model, finish_reason=self._finish(), stopped_by=self._stopped_by)
        return None

    def _finish(self) -> FinishReason | None:
        if self._stop_reason is None:
            return None
        # Only `ANSWER_TOOL` was called: to the client this is an ordinary answer in JSON.
        if self._stop_reason == "tool_use" and not self._calls:
            return "stop"
        return _FINISH.get(self._stop_reason, "stop")

    def _convert_usage(self, usage: _Usage | None) -> LlmChunk | None:
        """Anthropic's `input_tokens` excludes tokens read from or written to the cache; ours includes them."""
        if usage is None:
            return None
        parts = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)
        details = usage.output_tokens_details
        totals = Usage(
            in_token=None if usage.input_tokens is None else sum(part or 0 for part in parts),
            out_token=usage.output_tokens,
            cached_token=usage.cache_read_input_tokens,
            reasoning_token=details.thinking_tokens if details else None,
            cache_write_token=usage.cache_creation_input_tokens,
        )
        return LlmChunk().with_usage(self._counts.add_totals(totals))
