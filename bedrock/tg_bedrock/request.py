"""TextCompletionRequest -> the arguments of `converse_stream`, after the "Amazon Bedrock API reference".

Messages and tools have one format for the models of all families; Bedrock translates it for each of them.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tg_base.llm import call_arguments
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool
from tg_schema.errors import BadRequest

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.literals import ImageFormatType
    from types_boto3_bedrock_runtime.type_defs import (
        ContentBlockUnionTypeDef,
        ConverseStreamRequestTypeDef,
        ImageBlockUnionTypeDef,
        InferenceConfigurationTypeDef,
        MessageUnionTypeDef,
        ToolChoiceTypeDef,
        ToolConfigurationTypeDef,
        ToolResultBlockUnionTypeDef,
        ToolTypeDef,
    )

_FORMATS: dict[str, "ImageFormatType"] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}


def to_wire(
    request: TextCompletionRequest, model: str, sampling: Sampling, model_fields: Mapping[str, Any]
) -> "ConverseStreamRequestTypeDef":
    """The arguments of `converse_stream` for a request.

    Args:
        request: the request.
        model: id of the model or of an inference profile, or an ARN.
        sampling: the request's, with the configuration's defaults.
        model_fields: fields of this model only, for instance its thinking budget.

    Raises:
        BadRequest: this API cannot express the request.
    """
    wire: ConverseStreamRequestTypeDef = {"modelId": model, "messages": _messages(request.turns)}
    if request.system_text:
        wire["system"] = [{"text": request.system_text}]
    if inference := _inference(sampling):
        wire["inferenceConfig"] = inference
    # Converse has no choice "none": the tools are left out instead.
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


def _inference(sampling: Sampling) -> "InferenceConfigurationTypeDef":
    said: InferenceConfigurationTypeDef = {}
    if sampling.max_tokens is not None:
        said["maxTokens"] = sampling.max_tokens
    if sampling.temperature is not None:
        said["temperature"] = sampling.temperature
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
    """Merge consecutive turns of one role: Converse requires roles to alternate."""
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
