"""TextCompletionRequest -> Anthropic's Messages: pure functions, after the public API reference.

The format is the same for Anthropic's own API and for Claude on Vertex AI.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from tg_base.llm import call_arguments
from tg_schema import ImagePart, Message, Part, Sampling, TextCompletionRequest, Tool
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

FEATURES: frozenset[Feature] = frozenset(
    {"history", "images", "tools", "json", "schema", "stop", "top_p", "top_k"},
)
"""The features that this API has a field for."""

ANSWER_TOOL = "answer"
"""The forced tool that returns an answer as JSON; its input is the answer's text."""

Thinking = int | Literal["adaptive"] | None
"""The budget of thinking tokens, or "adaptive" if the model decides; None = no thinking."""


class Defaults(msgspec.Struct, frozen=True):
    """The defaults for requests without these fields.

    Attributes:
        max_tokens: the limit of an answer's tokens, which this API requires.
        temperature: None = the provider's default.
        thinking: the budget of thinking tokens.
        schema_by_tool: enforce a schema by a forced tool, for models without structured outputs.
    """

    max_tokens: int
    temperature: float | None = None
    thinking: Thinking = None
    schema_by_tool: bool = False


class _TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _ImageBlock(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    source: dict[str, str]


class _ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class _ToolResult(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: tuple[_TextBlock | _ImageBlock, ...] = ()
    is_error: bool = False


_Block = _TextBlock | _ImageBlock | _ToolUse | _ToolResult


class _Turn(msgspec.Struct, frozen=True):
    role: str
    content: tuple[_Block, ...]


class _Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    input_schema: dict[str, Any]
    description: str = ""


class MessagesRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /v1/messages`."""

    model: str
    max_tokens: int
    messages: tuple[_Turn, ...]
    stream: bool
    system: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()
    tools: tuple[_Tool, ...] = ()
    tool_choice: dict[str, str] | None = None
    output_config: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


def answers_by_tool(request: TextCompletionRequest, defaults: Defaults) -> bool:
    """Whether the answer comes as the input of `ANSWER_TOOL`."""
    if request.schema is not None:
        return defaults.schema_by_tool
    return request.response_format == "json"


def to_wire(request: TextCompletionRequest, model: str, defaults: Defaults) -> MessagesRequest:
    """The body for a request; `model` is its name at the provider.

    Raises:
        BadRequest: this API cannot express the request.
    """
    sampling = request.sampling or Sampling()
    by_tool = answers_by_tool(request, defaults)
    if by_tool and request.tools:
        raise BadRequest(
            "this provider can't answer in JSON and call tools at once; leave out response_format or tools"
        )
    turns = request.turns
    return MessagesRequest(
        model=model,
        max_tokens=sampling.max_tokens or defaults.max_tokens,
        messages=_turns(turns),
        stream=True,
        system=request.system_text,
        temperature=defaults.temperature if sampling.temperature is None else sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop_sequences=sampling.stop,
        tools=(_answer_tool(request.schema),) if by_tool else tuple(_tool(tool) for tool in request.tools),
        tool_choice={"type": "tool", "name": ANSWER_TOOL} if by_tool else _choice(request.tool_choice),
        output_config=None if by_tool else _output_config(request.schema),
        thinking=None if by_tool else _thinking(defaults.thinking, turns),
    )


def _turns(turns: Sequence[Message]) -> tuple[_Turn, ...]:
    """Merge consecutive turns of one role: the API wants all results of an assistant's calls in the next turn."""
    # A turn without blocks is dropped; the API refuses empty content.
    spoken = [(("assistant" if turn.role == "assistant" else "user"), _blocks(turn)) for turn in turns]
    return tuple(
        _Turn(role, tuple(block for _, blocks in group for block in blocks))
        for role, group in groupby((turn for turn in spoken if turn[1]), key=lambda turn: turn[0])
    )


def _blocks(turn: Message) -> tuple[_Block, ...]:
    shown = tuple(_convert_part(part) for part in turn.parts)
    if turn.role == "tool":
        return (_ToolResult(turn.tool_call_id or "", shown, is_error=turn.error),)
    return (*shown, *(_ToolUse(call.id, call.name, call_arguments(call.arguments)) for call in turn.tool_calls))


def _convert_part(part: Part) -> _TextBlock | _ImageBlock:
    if not isinstance(part, ImagePart):
        return _TextBlock(part.text)
    if part.url:
        return _ImageBlock({"type": "url", "url": part.url})
    return _ImageBlock({"type": "base64", "media_type": part.media_type, "data": part.data or ""})


def _tool(tool: Tool) -> _Tool:
    return _Tool(tool.name, tool.parameters, tool.description)


def _answer_tool(schema: dict[str, Any] | None) -> _Tool:
    return _Tool(ANSWER_TOOL, schema or {"type": "object"}, "Gives the answer. Its input is the answer.")


def _choice(choice: str | None) -> dict[str, str] | None:
    if choice is None:
        return None
    known = {"auto": "auto", "none": "none", "required": "any"}.get(choice)
    return {"type": known} if known else {"type": "tool", "name": choice}


def _output_config(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if schema is None else {"format": {"type": "json_schema", "schema": schema}}


def _thinking(thinking: Thinking, turns: Sequence[Message]) -> dict[str, Any] | None:
    """No thinking after tool calls: the API requires the signed thinking before them, which our records lack."""
    if thinking is None or any(turn.tool_calls for turn in turns):
        return None
    if thinking == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": thinking}
