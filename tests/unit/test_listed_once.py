"""Lists of names: what packages offer can be loaded, and what a configuration may name can be run."""

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

from tg_base.config import SERVICE_KINDS, SERVICES, TOOL_KINDS, AgentConfig
from tg_flow.agent.core import AgentTool
from tg_flow.agent.service import load_patterns
from tg_flow.usage import UsageConfig
from tg_gateway.jobs_kind import JobsConfig
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
    # These are found as a service of any installed package is.
    found = {point.name: point.load().table for point in entry_points(group=SERVICE_KINDS)}
    assert found == {**tables, "jobs": JobsConfig, "usage": UsageConfig}
    assert (*tables, GATEWAY) == PARTS


def test_each_group_of_entry_points_is_on_the_page_and_promised() -> None:
    root = Path(__file__).parents[2]
    page, support = ((root / file).read_text("utf-8") for file in ("docs/extending.md", "SUPPORT.md"))
    rows = re.findall(r"^\| (`tokengrid\..*?) \|", page, re.MULTILINE)
    listed = {group for row in rows for group in re.findall(r"tokengrid(\.\w+)", row)}
    (promised,) = re.findall(r"the groups of entry points, .*?: (.*?) \|", support)
    assert set(re.findall(r"(\.\w+)`", promised)) == listed
    projects = [tomllib.loads(file.read_text("utf-8"))["project"] for file in root.glob("*/pyproject.toml")]
    ours = {group.removeprefix("tokengrid") for project in projects for group in project.get("entry-points", {})}
    assert ours - {".embedded"} <= listed
