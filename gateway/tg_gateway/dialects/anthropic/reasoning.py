"""`thinking` and `output_config.effort` -> how much the model should think, where it can."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tg_gateway.dialects.anthropic.body import MessageBody
from tg_schema.text_completion import Reasoning


@dataclass(frozen=True, slots=True)
class AskedReasoning:
    """How much the model should think.

    Attributes:
        asked: None = nothing is asked of it.
        ignored: names of fields that a model without reasoning does not need.
    """

    asked: Reasoning | None
    ignored: tuple[str, ...] = ()


def read_reasoning(body: MessageBody, features: AbstractSet[str]) -> AskedReasoning:
    """How much the model should think.

    A budget is required: a model that does not reason refuses it. Adaptive thinking leaves it to the model, and an
    effort is a hint, so both are ignored where the model does not reason.

    Args:
        body: the request.
        features: what the model's processors announce.
    """
    kind = body.thinking.type if body.thinking else None
    budget = body.thinking.budget_tokens if body.thinking else None
    effort = body.output_config.effort if body.output_config else None
    if kind == "enabled":
        return AskedReasoning(Reasoning(effort, budget))
    if "reasoning" in features:
        budget = 0 if kind == "disabled" else None
        return AskedReasoning(Reasoning(effort, budget) if kind or effort else None)
    wishes = {"thinking": kind == "adaptive", "output_config.effort": effort is not None}
    return AskedReasoning(None, tuple(name for name, given in wishes.items() if given))
