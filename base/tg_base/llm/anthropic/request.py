"""TextCompletionRequest -> Anthropic's Messages: pure functions, after the public API reference.

The format is the same for Anthropic's own API and for Claude on Vertex AI.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tg_base.llm import close_objects, find_budget, set_fields
from tg_base.llm.anthropic.blocks import (
    DIALECT,
    WireTurn,
    cache_control,
    lacks_thinking,
    system_blocks,
    wire_turns,
)
from tg_base.llm.anthropic.options import ClaudeOptions
from tg_schema import Sampling, TextCompletionRequest, Tool
from tg_schema.errors import BadRequest
from tg_schema.features import Feature
from tg_schema.text_completion import Foreign, Reasoning

FEATURES: frozenset[Feature] = frozenset(
    {
        *("history", "images", "tools", "json", "schema", "stop", "top_p", "top_k"),
        *("reasoning", "parallel_tool_calls", "anthropic_fields", "count_tokens"),
    }
)
"""The features that this API has a field or a call for on every host."""

COUNTED_FIELDS = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"}
)
"""The fields of a body that `POST /v1/messages/count_tokens` takes."""

_PARTLY_KNOWN = {
    "thinking": frozenset({"type", "budget_tokens"}),
    "output_config": frozenset({"effort", "format"}),
}
"""Fields of a body that have more than our records express, each with the subfields that our records do express."""

ANSWER_TOOL = "answer"
"""The forced tool that returns an answer as JSON; its input is the answer's text."""


_OWN_FIELDS = frozenset(
    {
        *("model", "messages", "max_tokens", "stream", "system", "temperature", "top_p", "top_k", "stop_sequences"),
        *("tools", "tool_choice", "output_config", "thinking", "metadata"),
    }
)
"""The fields of a body that come from our records."""


MIN_BUDGET = 1024
"""The API's lowest budget of thinking tokens."""

Thinking = int | Literal["adaptive"] | None
"""The budget of thinking tokens, or "adaptive" if the model decides; None = no thinking."""


class ThinkingFields(msgspec.Struct, frozen=True):
    """The fields of a body that say how the model thinks; `max_tokens` includes the thinking."""

    max_tokens: int
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] = {}


def decide_thinking(
    asked: Reasoning | None,
    options: ClaudeOptions,
    turns: Sequence[WireTurn],
    *,
    forced: bool,
    max_tokens: int | None,
) -> ThinkingFields:
    """How the model thinks, by the request or else by the configuration.

    Args:
        asked: the request's own value; None = by the configuration.
        options: the configuration's.
        turns: the conversation.
        forced: whether the model must call a tool, before which it cannot think.
        max_tokens: the request's limit; None = the configuration's, raised by the budget.

    Raises:
        BadRequest: the API does not support this way of thinking.
    """
    limit = max_tokens or options.max_tokens
    if asked is None:
        budget = options.thinking
        return ThinkingFields(limit, None if forced else _fields(budget, turns))
    if asked.effort == "none" or asked.budget == 0:
        return ThinkingFields(limit, {"type": "disabled"})
    named = "low" if asked.effort == "minimal" else asked.effort
    effort = {} if named is None or options.effort_by == "budget" else {"effort": named}
    if forced:
        # An effort limits the whole answer; only a budget makes the model think.
        if asked.budget is None and asked.effort is not None:
            return ThinkingFields(limit, None, effort)
        raise BadRequest("reasoning: this model can't think before a tool that it must call, or before JSON by a tool")
    budget = _budget(asked, options)
    if budget is not None and budget >= limit:
        if max_tokens is not None:
            raise BadRequest("max_tokens: it includes the thinking, so it must be higher than the reasoning's budget")
        # The API counts thinking against the limit, while the configuration's limit is of the answer.
        limit += budget
    return ThinkingFields(limit, _fields("adaptive" if budget is None else budget, turns), effort)


def _budget(asked: Reasoning, options: ClaudeOptions) -> int | None:
    """The budget to send; None = the model decides."""
    if asked.budget is None:
        return find_budget(asked.effort) if asked.effort and options.effort_by == "budget" else None
    if asked.budget < MIN_BUDGET:
        raise BadRequest(f"reasoning.budget: this provider takes 0, or at least {MIN_BUDGET} tokens")
    return asked.budget


def _fields(thinking: Thinking, turns: Sequence[WireTurn]) -> dict[str, Any] | None:
    """With a budget, this API refuses rounds of calls that began without thinking."""
    if thinking is None:
        return None
    if thinking == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    return None if lacks_thinking(turns) else {"type": "enabled", "budget_tokens": thinking}


def answers_by_tool(request: TextCompletionRequest, options: ClaudeOptions) -> bool:
    """Whether the answer comes as the input of `ANSWER_TOOL`."""
    if request.schema is not None:
        return options.schema_by == "tool"
    return request.response_format == "json"


def to_wire(request: TextCompletionRequest, model: str, options: ClaudeOptions) -> dict[str, Any]:
    """The body for a request; `model` is its name at the provider.

    Raises:
        BadRequest: this API cannot express the request.
    """
    sampling = request.sampling or Sampling()
    by_tool = answers_by_tool(request, options)
    if by_tool and request.tools:
        raise BadRequest(
            "this provider can't answer in JSON and call tools at once; leave out response_format or tools"
        )
    turns = wire_turns(request.turns)
    forced = by_tool or request.tool_choice not in {None, "", "auto", "none"}
    thinking = decide_thinking(request.reasoning, options, turns, forced=forced, max_tokens=sampling.max_tokens)
    return set_fields(
        model=model,
        messages=turns,
        max_tokens=thinking.max_tokens,
        stream=True,
        system=system_blocks(request),
        temperature=options.temperature if sampling.temperature is None else sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop_sequences=tuple(sampling.stop),
        tools=(_answer_tool(request),) if by_tool else (*map(_tool, request.tools), *_foreign(request).tools),
        tool_choice={"type": "tool", "name": ANSWER_TOOL} if by_tool else _choice(request),
        output_config=thinking.output_config
        | (
            {}
            if by_tool or request.schema is None
            else {"format": {"type": "json_schema", "schema": close_objects(request.schema)}}
        )
        or None,
        thinking=thinking.thinking,
        metadata={"user_id": request.user} if request.user else None,
    )


def add_foreign_fields(own: dict[str, Any], request: TextCompletionRequest) -> dict[str, Any]:
    """A body merged with the request's Anthropic-only fields, nested ones too; the fields of our records win."""
    foreign = _foreign(request).fields
    body = {name: value for name, value in foreign.items() if name not in _OWN_FIELDS} | own
    for outer, known in _PARTLY_KNOWN.items():
        given = foreign.get(outer)
        inner = {name: value for name, value in given.items() if name not in known} if isinstance(given, dict) else {}
        # Without thinking, leave out the field for its display.
        if inner and (outer in own or outer != "thinking"):
            body[outer] = own.get(outer, {}) | inner
    if "tool_choice" in foreign:
        body.setdefault("tool_choice", foreign["tool_choice"])
    return body


def betas(request: TextCompletionRequest) -> tuple[str, ...]:
    """The beta versions of the API that the request asks for."""
    return _foreign(request).betas


def _foreign(request: TextCompletionRequest) -> Foreign:
    foreign = request.foreign
    return foreign if foreign is not None and foreign.dialect == DIALECT else Foreign(DIALECT)


def _tool(tool: Tool) -> dict[str, Any]:
    more = set_fields(description=tool.description, strict=tool.strict or None)
    return {"name": tool.name, "input_schema": tool.parameters, **more, **cache_control(tool.cache)}


def _answer_tool(request: TextCompletionRequest) -> dict[str, Any]:
    description = request.schema_description or "Gives the answer. Its input is the answer."
    return {"name": ANSWER_TOOL, "input_schema": request.schema or {"type": "object"}, "description": description}


def _choice(request: TextCompletionRequest) -> dict[str, Any] | None:
    choice, single = request.tool_choice or None, request.parallel_tool_calls is False and bool(request.tools)
    if choice is None and not single:
        return None
    known = {None: "auto", "auto": "auto", "none": "none", "required": "any"}.get(choice)
    # Besides "none", the API has no such field.
    single = single and known != "none"
    return set_fields(
        type=known or "tool", name=None if known else choice, disable_parallel_tool_use=True if single else None
    )
