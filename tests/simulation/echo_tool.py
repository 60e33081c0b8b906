"""Agent -> a tool that says what it is told, after a moment."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Self

from typing_extensions import override

from tg_base.config import ToolConfig
from tg_flow.agent import ToolContext
from tg_flow.agent.core.tool import AgentTool, Piece
from tg_schema import Tool

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class EchoTool(AgentTool):
    """`echo(text)`."""

    def __init__(self) -> None:
        super().__init__(Tool("echo", "Says it again.", _SCHEMA), ToolConfig(kind="python"))

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: Any, reach: ToolContext) -> tuple[Self, ...]:
        return (cls(),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        await asyncio.sleep(0.1)
        yield arguments["text"]
