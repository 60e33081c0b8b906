"""A request's reasoning -> an effort, or a budget, for an API that has only one of them. The steps are ours."""

from tg_schema.text_completion import Effort, Reasoning

_BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 32_768,
}


def find_budget(effort: Effort) -> int:
    """The thinking tokens that stand for an effort, at an API without efforts."""
    return _BUDGETS[effort]


def find_effort(reasoning: Reasoning | None) -> Effort | None:
    """The effort, at an API without budgets; None = the request does not say.

    It is "none" for a budget of 0, else the request's own, else the highest one within its budget.
    """
    if reasoning is None:
        return None
    if reasoning.budget == 0:
        return "none"
    if reasoning.effort is not None or reasoning.budget is None:
        return reasoning.effort
    return [effort for effort, tokens in _BUDGETS.items() if tokens <= max(reasoning.budget, 1024)][-1]
