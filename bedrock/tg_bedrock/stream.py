"""Events of Bedrock's Converse API -> LlmChunks, after the "Amazon Bedrock API reference"; and its list of models.

Events have one format for the models of all families.
"""

import base64
from collections.abc import Mapping
from typing import Final

import msgspec

from tg_base.llm import LlmChunk, event_error, write_signature
from tg_bedrock.blocks import ORIGIN, REDACTED_ORIGIN
from tg_schema import FinishReason, ModelInfo, ToolCallDelta
from tg_schema.errors import ProtocolError

_FINISH: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


class _Failure(msgspec.Struct, frozen=True):
    code: str
    text: str


class _ToolUse(msgspec.Struct, frozen=True, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    input: str = ""


class _Thought(msgspec.Struct, frozen=True, rename="camel"):
    text: str = ""
    signature: str = ""
    redacted_content: bytes = b""


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Thought | None = None


class _Block(msgspec.Struct, frozen=True, rename="camel"):
    content_block_index: int
    start: _Content = _Content()
    delta: _Content = _Content()


class _Stop(msgspec.Struct, frozen=True, rename="camel"):
    stop_reason: str


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Metadata(msgspec.Struct, frozen=True):
    usage: _Usage


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    content_block_start: _Block | None = None
    content_block_delta: _Block | None = None
    content_block_stop: _Block | None = None
    message_stop: _Stop | None = None
    metadata: _Metadata | None = None
    failure: _Failure | None = None


_events: Final = msgspec.json.Decoder(_Event)


class StreamDecoder:
    """Decodes one answer: events in, chunks out. It numbers tool calls itself, because Bedrock numbers all blocks.

    Attributes:
        done: whether the answer and its usage are complete.
    """

    def __init__(self) -> None:
        self.done = False
        self._calls: dict[int, int] = {}
        self._signature = ""
        self._redacted = b""

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event; None for an event without content, for instance the role.

        Raises:
            ProtocolError: the model generated output that Bedrock could not parse.
            TgError: Bedrock reports an error.
        """
        event = _events.decode(data)
        if event.content_block_delta is not None:
            return self._convert_delta(event.content_block_delta)
        if event.content_block_stop is not None:
            return self._end_thought()
        if event.content_block_start is not None:
            return self._convert_start(event.content_block_start)
        if event.message_stop is not None:
            return LlmChunk(finish_reason=_finish(event.message_stop.stop_reason))
        if event.failure is not None:
            # An error event's code begins with a lower-case letter, an error response's code with a capital.
            code = event.failure.code
            raise event_error(code[:1].upper() + code[1:], text=event.failure.text)
        return None if event.metadata is None else self._end(event.metadata.usage)

    def _convert_delta(self, block: _Block) -> LlmChunk | None:
        delta = block.delta
        if delta.text is not None:
            return LlmChunk(delta.text)
        if delta.tool_use is not None:
            index = self._calls.get(block.content_block_index, 0)
            return LlmChunk(tool_calls=(ToolCallDelta(index, arguments=delta.tool_use.input),))
        return None if delta.reasoning_content is None else self._convert_thought(delta.reasoning_content)

    def _convert_thought(self, thought: _Thought) -> LlmChunk | None:
        """Return text at once. Signature and encrypted bytes may come in pieces, so they wait for their block's end."""
        self._signature += thought.signature
        self._redacted += thought.redacted_content
        return LlmChunk(reasoning=thought.text) if thought.text else None

    def _end_thought(self) -> LlmChunk | None:
        signature, redacted = self._signature, self._redacted
        self._signature, self._redacted = "", b""
        if redacted:
            return LlmChunk(signature=write_signature(REDACTED_ORIGIN, base64.b64encode(redacted).decode()))
        return LlmChunk(signature=write_signature(ORIGIN, signature)) if signature else None

    def _convert_start(self, block: _Block) -> LlmChunk | None:
        call = block.start.tool_use
        if call is None:
            return None
        index = self._calls.setdefault(block.content_block_index, len(self._calls))
        return LlmChunk(tool_calls=(ToolCallDelta(index, call.tool_use_id, call.name),))

    def _end(self, usage: _Usage) -> LlmChunk:
        """`inputTokens` excludes cached tokens ("Prompt caching", "Amazon Bedrock User Guide"); ours includes them."""
        self.done = True
        read, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
        return LlmChunk(
            in_token=usage.input_tokens + (read or 0) + (written or 0),
            out_token=usage.output_tokens,
            cached_token=read,
            cache_write_token=written,
        )


def _finish(reason: str) -> FinishReason:
    # Bedrock's words are `malformed_model_output` and `malformed_tool_use`.
    if reason.startswith("malformed"):
        raise ProtocolError("the model wrote an answer that the provider could not read; ask again")
    return _FINISH.get(reason, "stop")


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    model_id: str
    provider_name: str = ""
    response_streaming_supported: bool = True


class _Models(msgspec.Struct, frozen=True, rename="camel"):
    model_summaries: tuple[_Model, ...]


def list_models(body: bytes) -> tuple[ModelInfo, ...]:
    """The text models that can stream, of Bedrock's whole list. Raises `msgspec.DecodeError`."""
    listed = msgspec.json.decode(body, type=_Models).model_summaries
    return tuple([ModelInfo(each.model_id, each.provider_name) for each in listed if each.response_streaming_supported])
