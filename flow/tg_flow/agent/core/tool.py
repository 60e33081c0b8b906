"""Loop -> tool: what every kind of tool is to an agent."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from tg_base.client import Client, Requestor
from tg_base.config import Config, ToolConfig
from tg_schema import AgentResponse, Tool
from tg_schema.errors import BadRequest


class TokenUsage(NamedTuple):
    """Tokens that a call has cost."""

    in_token: int | None
    out_token: int | None


Piece = str | TokenUsage | AgentResponse
"""Of an observation: its text, what it cost, or a record of a sub-agent that goes to the requestor as it is."""


class ToolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a kind of tool; its own `Options` derive from it."""


class AgentTool(ABC):
    """Something that an agent can call. Calls run side by side.

    Attributes:
        declaration: what the model is told of it.
        table: what the configuration says of it.
    """

    Options: ClassVar[type[ToolOptions]] = ToolOptions

    def __init__(self, declaration: Tool, table: ToolConfig) -> None:
        self.declaration = declaration
        self.table = table

    @classmethod
    @abstractmethod
    async def open(cls, name: str, table: ToolConfig, options: Any, context: "ToolContext") -> tuple[Self, ...]:
        """Make ready what one table of the configuration describes.

        Args:
            name: the table's.
            table: what it says.
            options: its options, an `Options` of this kind.
            context: what the tool may use.

        Raises:
            TgError: it cannot be made ready; the message says what to do.
        """

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        """Yield the observation as it comes. The arguments satisfy the schema.

        Closing the generator, or cancelling its task, must stop the work.

        Raises:
            TgError: the call failed; the model is told the message.
        """

    async def aclose(self) -> None:  # noqa: B027 - most tools hold nothing
        """Let go of what the tool holds. Called once, after its last call."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What tools may use: the configuration, the flow that they are called from, and the services on the bus."""

    config: Config
    flow: str
    requestor: Requestor

    def client(self, service: str, flow: str | None = None) -> Client[Any, Any]:
        """A client of one service of this flow, or of another one.

        Raises:
            BadRequest: the flow has no such service.
        """
        flow = flow or self.flow
        for route in self.config.routes(service):
            if route.flow == flow:
                return Client(self.requestor, route)
        raise BadRequest(f'flow "{flow}" has no {service}; add it, or name another flow').at("flow")


def declare(name: str, table: ToolConfig, description: str, arguments: dict[str, Any]) -> Tool:
    """What the model is told: what the table says wins over what the tool says of itself."""
    schema = arguments if table.arguments is None else {"type": "object"} | table.arguments
    return Tool(name, table.description or description, schema)


def cut_note(finish_reason: str | None) -> str:
    """What an observation ends with where the model that gave it was cut, so that nobody takes it for whole."""
    return "\n(cut: the model has reached its limit of tokens)" if finish_reason == "length" else ""
