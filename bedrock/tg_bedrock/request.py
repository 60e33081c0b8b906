"""TextCompletionRequest -> the arguments of `converse_stream`, after the "Amazon Bedrock API reference".

Messages and tools have one format for the models of all families; Bedrock translates it for each of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tg_base.llm import close_objects, find_effort, set_fields
from tg_bedrock.blocks import cache_point, wire_messages
from tg_schema import Sampling, TextCompletionRequest, TextPart, Tool
from tg_schema.text_completion import SYSTEM_ROLES, Effort, Reasoning

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef, SystemContentBlockTypeDef


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
        by_thinking: send the reasoning as Claude's field `thinking` too, not only as an effort.

    Raises:
        BadRequest: this API cannot express the request.
    """
    fields = {**model_fields, **(_thinking(request.reasoning) if by_thinking else {})}
    wire = set_fields(
        modelId=model,
        messages=wire_messages(request.turns),
        system=_system(request) or None,
        inferenceConfig=_inference(sampling) or None,
        # Converse has no choice "none": the tools are left out instead.
        toolConfig=_tools(request) if request.tools and request.tool_choice != "none" else None,
        outputConfig=_output(request, by_thinking=by_thinking) or None,
        additionalModelRequestFields=fields or None,
    )
    return cast("ConverseStreamRequestTypeDef", wire)


def _output(request: TextCompletionRequest, *, by_thinking: bool) -> dict[str, Any]:
    effort = _name_effort(request.reasoning) if by_thinking else find_effort(request.reasoning)
    return set_fields(textFormat=_text_format(request), effort=effort)


def _text_format(request: TextCompletionRequest) -> dict[str, Any] | None:
    if request.schema is None:
        return None
    named = set_fields(
        schema=msgspec.json.encode(close_objects(request.schema)).decode(),
        name=request.schema_name or "answer",
        description=request.schema_description,
    )
    return {"type": "json_schema", "structure": {"jsonSchema": named}}


def _name_effort(reasoning: Reasoning | None) -> Effort | None:
    """The effort to send beside `thinking`, in Claude's words; None = `thinking` says it all."""
    if reasoning is None or reasoning.effort == "none":
        return None
    return "low" if reasoning.effort == "minimal" else reasoning.effort


def _thinking(reasoning: Reasoning | None) -> dict[str, Any]:
    if reasoning is None:
        return {}
    if reasoning.effort == "none" or reasoning.budget == 0:
        return {"thinking": {"type": "disabled"}}
    if reasoning.budget is None:
        return {"thinking": {"type": "adaptive"}}
    return {"thinking": {"type": "enabled", "budget_tokens": reasoning.budget}}


def _system(request: TextCompletionRequest) -> "list[SystemContentBlockTypeDef]":
    """One text block; with cache marks, one block for each part."""
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


def _inference(sampling: Sampling) -> dict[str, Any]:
    return set_fields(
        maxTokens=sampling.max_tokens,
        temperature=sampling.temperature,
        topP=sampling.top_p,
        stopSequences=sampling.stop,
    )


def _tools(request: TextCompletionRequest) -> dict[str, Any]:
    choice: dict[str, Any] | None = None
    if request.tool_choice not in {None, "", "auto"}:
        choice = {"any": {}} if request.tool_choice == "required" else {"tool": {"name": request.tool_choice}}
    return set_fields(tools=list(_tool_blocks(request.tools)), toolChoice=choice)


def _tool_blocks(tools: Iterable[Tool]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        yield {
            "toolSpec": set_fields(
                name=tool.name,
                inputSchema={"json": tool.parameters},
                description=tool.description,
                strict=tool.strict or None,
            )
        }
        if tool.cache:
            yield {"cachePoint": cache_point(tool.cache)}
