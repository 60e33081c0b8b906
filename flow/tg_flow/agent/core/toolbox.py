"""Dialog -> tools: the tools of one flow, and which of them can be called in which state."""

from collections.abc import Iterable
from typing import Any

from tg_base.config import ToolConfig
from tg_base.llm import BadSchema, ObjectSchema
from tg_base.runtime import WorkerPool
from tg_flow.agent.core.tool import AgentTool
from tg_schema.agent import ALL_GROUPS, DEFAULT_GROUP
from tg_schema.errors import BadRequest

FIRST_STATE = "undefined"


class Toolbox:
    """Tools by name, with their compiled schemas.

    Args:
        tools: the tools; no two may have the same name.
        checkers: the worker pool that checks arguments if a check may take long.

    Raises:
        BadRequest: two tools have the same name, or a schema is wrong.
    """

    def __init__(self, tools: Iterable[AgentTool], checkers: WorkerPool) -> None:
        self._checkers = checkers
        self._tools: dict[str, AgentTool] = {}
        self._schemas: dict[str, ObjectSchema] = {}
        for tool in tools:
            name = tool.declaration.name
            if name in self._tools:
                raise BadRequest(f'two tools have the name "{name}"; rename one')
            self._tools[name] = tool
            self._schemas[name] = compile_schema(tool)

    @property
    def next_states(self) -> dict[str, str | None]:
        """For each tool, the dialog's state after it was called; None = unchanged."""
        return {name: tool.table.state for name, tool in self._tools.items()}

    def available(self, groups: Iterable[str] | None, state: str) -> dict[str, AgentTool]:
        """The tools that a request with these groups can call in this state of the dialog."""
        wanted = frozenset((DEFAULT_GROUP,) if groups is None else groups)
        return {name: tool for name, tool in self._tools.items() if _in_reach(tool.table, wanted, state)}

    async def fault(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments, as a sentence for the model; None = nothing."""
        try:
            return await self._schemas[name].fault(arguments, self._checkers)
        except BadSchema as bad:
            return bad.message


def _in_reach(table: ToolConfig, groups: frozenset[str], state: str) -> bool:
    in_group = ALL_GROUPS in groups or not groups.isdisjoint(table.group or (DEFAULT_GROUP,))
    states = table.applicable_states or (ALL_GROUPS,)
    return in_group and (ALL_GROUPS in states or state in states)


def compile_schema(tool: AgentTool) -> ObjectSchema:
    """Compile the schema of a tool's arguments. Raises BadRequest with the position of an error in it."""
    try:
        return ObjectSchema(tool.declaration.parameters, trusted=True)
    except BadSchema as bad:
        sentence = f'the arguments of the tool "{tool.declaration.name}": {bad.message}'
        raise BadRequest(sentence).at("arguments", *bad.path) from None
