"""TextCompletionRequest -> the arguments of `converse_stream`, after the "Amazon Bedrock API reference".

Messages and tools have one format for the models of all families; Bedrock translates it for each of them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tg_base.llm import close_objects, find_effort
from tg_bedrock.blocks import cache_point, wire_messages
from tg_schema import Sampling, TextCompletionRequest, TextPart, Tool
from tg_schema.text_completion import SYSTEM_ROLES, Reasoning

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.type_defs import (
        ConverseStreamRequestTypeDef,
        InferenceConfigurationTypeDef,
        JsonSchemaDefinitionTypeDef,
        OutputConfigTypeDef,
        SystemContentBlockTypeDef,
        ToolChoiceTypeDef,
        ToolConfigurationTypeDef,
        ToolSpecificationTypeDef,
        ToolTypeDef,
    )


def to_wire(
    request: TextCompletionRequest,
    model: str,
    sampling: Sampling,
    model_fields: Mapping[str, Any],
    *,
    by_thinking: bool = False,
) -> "ConverseStreamRequestTypeDef":
    """The arguments of `converse_stream` for a request.

    Args:
        request: the request.
        model: id of the model or of an inference profile, or an ARN.
        sampling: the request's, with the configuration's defaults.
        model_fields: fields of this model only, for instance its thinking budget.
        by_thinking: tell the reasoning by Claude's field `thinking` too, not only as an effort.

    Raises:
        BadRequest: this API cannot express the request.
    """
    wire: ConverseStreamRequestTypeDef = {"modelId": model, "messages": wire_messages(request.turns)}
    if system := _system(request):
        wire["system"] = system
    if inference := _inference(sampling):
        wire["inferenceConfig"] = inference
    # Converse has no choice "none": the tools are left out instead.
    if request.tools and request.tool_choice != "none":
        wire["toolConfig"] = _tools(request)
    if output := _output(request, by_thinking=by_thinking):
        wire["outputConfig"] = output
    if fields := {**model_fields, **(_thinking(request.reasoning) if by_thinking else {})}:
        wire["additionalModelRequestFields"] = fields
    return wire


def _output(request: TextCompletionRequest, *, by_thinking: bool) -> "OutputConfigTypeDef":
    config: OutputConfigTypeDef = {}
    if request.schema is not None:
        shape = msgspec.json.encode(close_objects(request.schema)).decode()
        named: JsonSchemaDefinitionTypeDef = {"schema": shape, "name": request.schema_name or "answer"}
        if request.schema_description:
            named["description"] = request.schema_description
        config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": named}}
    effort = request.reasoning and (request.reasoning.effort if by_thinking else find_effort(request.reasoning))
    if effort and not (by_thinking and effort == "none"):
        config["effort"] = "low" if by_thinking and effort == "minimal" else effort
    return config


def _thinking(reasoning: Reasoning | None) -> dict[str, Any]:
    if reasoning is None:
        return {}
    if reasoning.effort == "none" or reasoning.budget == 0:
        return {"thinking": {"type": "disabled"}}
    if reasoning.budget is None:
        return {"thinking": {"type": "adaptive"}}
    return {"thinking": {"type": "enabled", "budget_tokens": reasoning.budget}}


def _system(request: TextCompletionRequest) -> "list[SystemContentBlockTypeDef]":
    """One text; with cache marks a block for each part."""
    parts = [part for turn in request.messages if turn.role in SYSTEM_ROLES for part in turn.parts]
    texts = [part for part in parts if isinstance(part, TextPart) and part.text]
    if not any(part.cache for part in texts):
        return [{"text": request.system_text}] if request.system_text else []
    blocks: list[SystemContentBlockTypeDef] = [{"text": request.system}] if request.system else []
    for part in texts:
        blocks.append({"text": part.text})
        if part.cache:
            blocks.append({"cachePoint": cache_point(part.cache)})
    return blocks


def _inference(sampling: Sampling) -> "InferenceConfigurationTypeDef":
    config: InferenceConfigurationTypeDef = {}
    if sampling.max_tokens is not None:
        config["maxTokens"] = sampling.max_tokens
    if sampling.temperature is not None:
        config["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        config["topP"] = sampling.top_p
    if sampling.stop:
        config["stopSequences"] = sampling.stop
    return config


def _tools(request: TextCompletionRequest) -> "ToolConfigurationTypeDef":
    config: ToolConfigurationTypeDef = {"tools": list(_tool_blocks(request.tools))}
    choice = request.tool_choice
    if choice not in {None, "", "auto"}:
        named: ToolChoiceTypeDef = {"any": {}} if choice == "required" else {"tool": {"name": choice or ""}}
        config["toolChoice"] = named
    return config


def _tool_blocks(tools: Iterable[Tool]) -> "Iterable[ToolTypeDef]":
    for tool in tools:
        spec: ToolSpecificationTypeDef = {"name": tool.name, "inputSchema": {"json": tool.parameters}}
        if tool.description:
            spec["description"] = tool.description
        if tool.strict:
            spec["strict"] = True
        yield {"toolSpec": spec}
        if tool.cache:
            yield {"cachePoint": cache_point(tool.cache)}
