"""TextCompletionRequest -> how Claude thinks: `thinking`, its effort, and the limit of tokens, which go together.

After the public API reference ("Extended thinking", "Adaptive thinking", "Effort").
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tg_base.llm import find_budget
from tg_base.llm.anthropic.blocks import WireTurn, lacks_thinking
from tg_base.llm.anthropic.options import ClaudeOptions
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Reasoning

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
        asked: the request's; None = by the configuration.
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
