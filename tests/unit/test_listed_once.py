"""Lists of names: each is one type, and the table that says what is behind the names has all of them."""

from importlib.metadata import entry_points
from typing import get_args

import click

from tg_base.config import AGENT_PATTERNS, SERVICES, TOOL_KINDS
from tg_cli.invoke_agent import invoke_agent
from tg_flow.agent.core import AgentTool
from tg_schema.agent import Pattern
from tg_serve import options


def test_each_pattern_is_there() -> None:
    assert entry_points(group=AGENT_PATTERNS).names == set(get_args(Pattern))
    (option,) = (each for each in invoke_agent.params if each.name == "pattern")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == get_args(Pattern)


def test_each_kind_of_tool_is_there() -> None:
    for kind in entry_points(group=TOOL_KINDS):
        assert issubclass(kind.load(), AgentTool)


def test_each_service_that_a_flow_can_bind_can_be_run() -> None:
    assert tuple(options.SERVICES) == tuple(table.spec.name for table in SERVICES if table.spec is not None)
