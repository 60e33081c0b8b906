"""Lists of names: what packages offer can be loaded, and what a configuration may name can be run."""

from importlib.metadata import entry_points

from tg_base.config import SERVICE_KINDS, SERVICES, TOOL_KINDS, AgentConfig
from tg_flow.agent.core import AgentTool
from tg_flow.agent.service import load_patterns
from tg_serve.options import GATEWAY, PARTS


def test_each_pattern_is_there() -> None:
    patterns = load_patterns(AgentConfig())
    assert patterns.keys() >= {"react", "plan-then-execute", "supervisor"}
    assert all(map(callable, patterns.values()))


def test_each_kind_of_tool_is_there() -> None:
    kinds = {point.name: point.load() for point in entry_points(group=TOOL_KINDS)}
    assert kinds.keys() >= {"prompt", "text-completion", "python", "http", "mcp", "service"}
    assert all(issubclass(kind, AgentTool) for kind in kinds.values())


def test_each_service_that_a_flow_can_bind_can_be_run() -> None:
    tables = {table.spec.name: table for table in SERVICES if table.spec is not None}
    assert {point.name: point.load().table for point in entry_points(group=SERVICE_KINDS)} == tables
    assert (*tables, GATEWAY) == PARTS
