"""Bedrock's Converse API <-> our records: pure functions of values, after the "Amazon Bedrock API reference".

One shape of messages, tools and events for the models of every family; what differs among them, Bedrock translates.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tg_base.llm import LlmChunk, call_arguments
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool, ToolCallDelta
from tg_schema.errors import BadRequest, ProtocolError

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.literals import ImageFormatType
    from types_boto3_bedrock_runtime.type_defs import (
        ContentBlockUnionTypeDef,
        ConverseStreamOutputTypeDef,
        ConverseStreamRequestTypeDef,
        ImageBlockUnionTypeDef,
        InferenceConfigurationTypeDef,
        MessageUnionTypeDef,
        TokenUsageTypeDef,
        ToolChoiceTypeDef,
        ToolConfigurationTypeDef,
        ToolResultBlockUnionTypeDef,
        ToolTypeDef,
    )

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_FORMATS: dict[str, "ImageFormatType"] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}


def to_wire(
    request: TextCompletionRequest, model: str, *, defaults: Sampling, model_fields: Mapping[str, Any]
) -> "ConverseStreamRequestTypeDef":
    """The arguments of `converse_stream` for a request.

    Args:
        request: what to answer.
        model: id of the model or of an inference profile, or an ARN.
        defaults: for sampling fields that the request leaves open.
        model_fields: what only this model knows, for instance how much it shall think.

    Raises:
        BadRequest: the request asks for what this API cannot do.
    """
    wire: ConverseStreamRequestTypeDef = {"modelId": model, "messages": _messages(request.turns)}
    if request.system_text:
        wire["system"] = [{"text": request.system_text}]
    if inference := _inference(request.sampling or defaults, defaults):
        wire["inferenceConfig"] = inference
    if request.tools and request.tool_choice != "none":
        wire["toolConfig"] = _tools(request.tools, request.tool_choice)
    if request.schema is not None:
        shape = msgspec.json.encode(request.schema).decode()
        wire["outputConfig"] = {
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": shape, "name": "answer"}}}
        }
    if model_fields:
        wire["additionalModelRequestFields"] = model_fields
    return wire


def _inference(sampling: Sampling, defaults: Sampling) -> "InferenceConfigurationTypeDef":
    said: InferenceConfigurationTypeDef = {}
    limit = defaults.max_tokens if sampling.max_tokens is None else sampling.max_tokens
    if limit is not None:
        said["maxTokens"] = limit
    temperature = defaults.temperature if sampling.temperature is None else sampling.temperature
    if temperature is not None:
        said["temperature"] = temperature
    if sampling.top_p is not None:
        said["topP"] = sampling.top_p
    if sampling.stop:
        said["stopSequences"] = sampling.stop
    return said


def _tools(tools: Iterable[Tool], choice: str | None) -> "ToolConfigurationTypeDef":
    config: ToolConfigurationTypeDef = {"tools": [_tool(tool) for tool in tools]}
    if choice not in {None, "", "auto"}:
        named: ToolChoiceTypeDef = {"any": {}} if choice == "required" else {"tool": {"name": choice or ""}}
        config["toolChoice"] = named
    return config


def _tool(tool: Tool) -> "ToolTypeDef":
    if tool.description:
        return {
            "toolSpec": {"name": tool.name, "description": tool.description, "inputSchema": {"json": tool.parameters}}
        }
    return {"toolSpec": {"name": tool.name, "inputSchema": {"json": tool.parameters}}}


def _messages(turns: Iterable[Message]) -> "list[MessageUnionTypeDef]":
    """Turns of one side that follow each other become one message: Converse wants the sides to alternate."""
    said: list[tuple[str, list[ContentBlockUnionTypeDef]]] = []
    for turn in turns:
        side = "assistant" if turn.role == "assistant" else "user"
        if not said or said[-1][0] != side:
            said.append((side, []))
        said[-1][1].extend(_blocks(turn))
    return [{"role": "assistant" if side == "assistant" else "user", "content": blocks} for side, blocks in said]


def _blocks(turn: Message) -> "Iterable[ContentBlockUnionTypeDef]":
    if turn.role == "tool":
        yield {"toolResult": _result(turn)}
        return
    for part in turn.parts:
        if isinstance(part, TextPart):
            yield {"text": part.text}
        else:
            yield {"image": _image(part)}
    for call in turn.tool_calls:
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call_arguments(call.arguments)}}


def _result(turn: Message) -> "ToolResultBlockUnionTypeDef":
    result: ToolResultBlockUnionTypeDef = {
        "toolUseId": turn.tool_call_id or "",
        "content": [
            {"text": part.text} if isinstance(part, TextPart) else {"image": _image(part)} for part in turn.parts
        ],
    }
    if turn.error:
        result["status"] = "error"
    return result


def _image(part: ImagePart) -> "ImageBlockUnionTypeDef":
    if part.data is None:
        raise BadRequest("this provider takes no image by its URL; send the image itself, as base64 in `data`")
    kind = _FORMATS.get(part.media_type)
    if kind is None:
        raise BadRequest(f"this provider takes images of the types {', '.join(_FORMATS)}")
    try:
        return {"format": kind, "source": {"bytes": base64.b64decode(part.data, validate=True)}}
    except binascii.Error:
        raise BadRequest("an image's `data` is not base64") from None


class StreamDecoder:
    """One answer as it is read: events in, chunks out. Counts the tool calls, because Bedrock counts all blocks."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}

    def chunk(self, event: "ConverseStreamOutputTypeDef") -> LlmChunk | None:
        """The chunk for an event; None where it has nothing to say, for instance the role's.

        Raises:
            ProtocolError: the model wrote what Bedrock could not read.
        """
        if "contentBlockDelta" in event:
            block = event["contentBlockDelta"]
            delta = block["delta"]
            if "text" in delta:
                return LlmChunk(delta["text"])
            if "toolUse" in delta:
                index = self._calls.get(block["contentBlockIndex"], 0)
                return LlmChunk(tool_calls=(ToolCallDelta(index, arguments=delta["toolUse"]["input"]),))
            thought = delta["reasoningContent"].get("text") if "reasoningContent" in delta else None
            return LlmChunk(reasoning=thought) if thought else None
        if "contentBlockStart" in event:
            return self._convert_start(event)
        if "messageStop" in event:
            return LlmChunk(finish_reason=_finish(event["messageStop"]["stopReason"]))
        return _usage(event["metadata"]["usage"]) if "metadata" in event else None

    def _convert_start(self, event: "ConverseStreamOutputTypeDef") -> LlmChunk | None:
        block = event["contentBlockStart"]
        if "toolUse" not in block["start"]:
            return None
        call = block["start"]["toolUse"]
        index = self._calls.setdefault(block["contentBlockIndex"], len(self._calls))
        return LlmChunk(tool_calls=(ToolCallDelta(index, call["toolUseId"], call["name"]),))


def _finish(reason: str) -> str:
    if reason.startswith("malformed"):
        raise ProtocolError("the model wrote an answer that the provider could not read; ask again")
    return _FINISH.get(reason, "stop")


def _usage(usage: "TokenUsageTypeDef") -> LlmChunk:
    """`inputTokens` has only what the cache had no part in ("Prompt caching" in the "Amazon Bedrock User Guide")."""
    read = usage.get("cacheReadInputTokens")
    return LlmChunk(
        in_token=usage["inputTokens"] + (read or 0) + (usage.get("cacheWriteInputTokens") or 0),
        out_token=usage["outputTokens"],
        cached_token=read,
    )
