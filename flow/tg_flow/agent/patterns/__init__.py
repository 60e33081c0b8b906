"""Dialog -> answer: the patterns of reasoning, one file each, over the same loop."""

from tg_flow.agent.patterns.plan_then_execute import plan_then_execute
from tg_flow.agent.patterns.react import react
from tg_flow.agent.patterns.supervisor import supervisor

__all__ = [
    "plan_then_execute",
    "react",
    "supervisor",
]
