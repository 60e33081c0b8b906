"""Loop -> tool: the interface of every kind of tool."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec

from tg_base.client import Client, Requestor
from tg_base.config import Config, ToolConfig
from tg_schema import AgentResponse, FinishReason, Tool, Usage
from tg_schema.errors import BadRequest, ProviderAuth

Piece = str | Usage | AgentResponse
"""A piece of an observation: text, token usage, or a record of a sub-agent, which is forwarded to the requestor."""


class ToolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a kind of tool. Each kind derives its own `Options` from this."""


class AgentTool(ABC):
    """A tool that an agent can call. Calls run concurrently.

    Attributes:
        declaration: name, description and schema, as the model sees them.
        table: the tool's table in the configuration.
    """

    Options: ClassVar[type[ToolOptions]] = ToolOptions

    def __init__(self, declaration: Tool, table: ToolConfig) -> None:
        self.declaration = declaration
        self.table = table

    @classmethod
    @abstractmethod
    async def open(cls, name: str, table: ToolConfig, options: Any, context: "ToolContext") -> tuple[Self, ...]:
        """Open the tools that one table of the configuration describes.

        Args:
            name: the table's name.
            table: the table.
            options: the table's options, an instance of this kind's `Options`.
            context: the resources that the tool may use.

        Raises:
            TgError: the tool cannot be opened; the message says what to do.
        """

    @abstractmethod
    def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        """Yield the observation as it arrives. The arguments satisfy the schema.

        If the generator is closed or its task is cancelled, the work must stop.

        Raises:
            TgError: the call failed; the model gets the message.
        """

    async def aclose(self) -> None:  # noqa: B027 - most tools hold nothing
        """Close the tool's resources. Called once, after the last call."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The resources of tools: the configuration, the flow that the tools are called from, and the bus."""

    config: Config
    flow: str
    requestor: Requestor

    def client(self, service: str, flow: str | None = None) -> Client[Any, Any]:
        """A client of a service of this flow, or of another flow that an option of the tool names.

        Raises:
            BadRequest: the flow has no such service.
        """
        flow = flow or self.flow
        for route in self.config.routes(service):
            if route.flow == flow:
                return Client(self.requestor, route)
        raise BadRequest(f'flow "{flow}" has no {service}; add it, or name another flow').at("flow")


def declare(name: str, table: ToolConfig, description: str, arguments: dict[str, Any]) -> Tool:
    """The tool's declaration for the model: the table's values override the tool's own."""
    schema = arguments if table.arguments is None else {"type": "object"} | table.arguments
    return Tool(name, table.description or description, schema)


def read_secrets(secrets: Mapping[str, str], needs: str) -> dict[str, str]:
    """The values of the environment variables that a tool's option `secrets` names.

    Args:
        secrets: for each value its name, and the variable that holds it.
        needs: who needs the value, for the error; `{}` is replaced by the value's name.

    Raises:
        ProviderAuth: a variable is not set.
    """
    for name, variable in secrets.items():
        if not os.environ.get(variable):
            sentence = f"{needs.format(name)} needs the environment variable {variable}; set it"
            raise ProviderAuth(sentence).at("secrets", name)
    return {name: os.environ[variable] for name, variable in secrets.items()}


def cut_note(finish_reason: FinishReason | None) -> str:
    """A note that ends an observation if the token limit of the model that wrote it cut it off, else ""."""
    return "\n(cut: the model has reached its limit of tokens)" if finish_reason == "length" else ""
