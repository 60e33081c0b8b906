"""Events of Bedrock's Converse API -> LlmChunks, after the "Amazon Bedrock API reference".

Events have one format for the models of all families.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tg_base.llm import LlmChunk, write_signature
from tg_bedrock.blocks import ORIGIN, REDACTED_ORIGIN
from tg_schema import FinishReason, ToolCallDelta
from tg_schema.errors import ProtocolError

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.type_defs import (
        ContentBlockDeltaEventTypeDef,
        ConverseStreamOutputTypeDef,
        ReasoningContentBlockDeltaTypeDef,
        TokenUsageTypeDef,
    )

_FINISH: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


class StreamDecoder:
    """Decodes one answer: events in, chunks out. It numbers tool calls itself, because Bedrock numbers all blocks."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._signature = ""
        self._redacted = b""

    def chunk(self, event: "ConverseStreamOutputTypeDef") -> LlmChunk | None:
        """The chunk of an event; None for an event without content, for instance the role.

        Raises:
            ProtocolError: the model generated output that Bedrock could not parse.
        """
        if "contentBlockDelta" in event:
            return self._convert_delta(event["contentBlockDelta"])
        if "contentBlockStop" in event:
            return self._end_thought()
        if "contentBlockStart" in event:
            return self._convert_start(event)
        if "messageStop" in event:
            return LlmChunk(finish_reason=_finish(event["messageStop"]["stopReason"]))
        return _usage(event["metadata"]["usage"]) if "metadata" in event else None

    def _convert_delta(self, block: "ContentBlockDeltaEventTypeDef") -> LlmChunk | None:
        delta = block["delta"]
        if "text" in delta:
            return LlmChunk(delta["text"])
        if "toolUse" in delta:
            index = self._calls.get(block["contentBlockIndex"], 0)
            return LlmChunk(tool_calls=(ToolCallDelta(index, arguments=delta["toolUse"]["input"]),))
        return self._convert_thought(delta["reasoningContent"]) if "reasoningContent" in delta else None

    def _convert_thought(self, thought: "ReasoningContentBlockDeltaTypeDef") -> LlmChunk | None:
        """Text at once; signature and encrypted bytes, which may come in pieces, at the end of their block."""
        self._signature += thought.get("signature", "")
        self._redacted += thought.get("redactedContent", b"")
        return LlmChunk(reasoning=thought["text"]) if thought.get("text") else None

    def _end_thought(self) -> LlmChunk | None:
        signature, redacted = self._signature, self._redacted
        self._signature, self._redacted = "", b""
        if redacted:
            return LlmChunk(signature=write_signature(REDACTED_ORIGIN, base64.b64encode(redacted).decode()))
        return LlmChunk(signature=write_signature(ORIGIN, signature)) if signature else None

    def _convert_start(self, event: "ConverseStreamOutputTypeDef") -> LlmChunk | None:
        block = event["contentBlockStart"]
        if "toolUse" not in block["start"]:
            return None
        call = block["start"]["toolUse"]
        index = self._calls.setdefault(block["contentBlockIndex"], len(self._calls))
        return LlmChunk(tool_calls=(ToolCallDelta(index, call["toolUseId"], call["name"]),))


def _finish(reason: str) -> FinishReason:
    # Bedrock's words are `malformed_model_output` and `malformed_tool_use`.
    if reason.startswith("malformed"):
        raise ProtocolError("the model wrote an answer that the provider could not read; ask again")
    return _FINISH.get(reason, "stop")


def _usage(usage: "TokenUsageTypeDef") -> LlmChunk:
    """`inputTokens` excludes cached tokens ("Prompt caching", "Amazon Bedrock User Guide"); ours includes them."""
    read = usage.get("cacheReadInputTokens")
    return LlmChunk(
        in_token=usage["inputTokens"] + (read or 0) + (usage.get("cacheWriteInputTokens") or 0),
        out_token=usage["outputTokens"],
        cached_token=read,
        cache_write_token=usage.get("cacheWriteInputTokens"),
    )
