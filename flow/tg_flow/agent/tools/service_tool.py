"""Agent -> any service on the bus that answers the tool records, in any process and language."""

from collections.abc import AsyncGenerator
from typing import Any, Self

from typing_extensions import override

from tg_base.client import Client
from tg_base.config import ToolConfig
from tg_base.protocol import Route
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, declare
from tg_schema import Tool, encode
from tg_schema.errors import BadRequest
from tg_schema.service_spec import TOOL
from tg_schema.tool import ToolRequest, ToolResponse
from tg_schema.topics import resolve_topic


class ServiceOptions(ToolOptions, frozen=True):
    """The address of the service.

    Attributes:
        service: its name in this flow's topics; default: the tool's name.
        flow: another flow.
        request: the topic of its requests, instead of the flow's.
        response: the topic of its responses, if it is a plain peer such as TrustGraph's, which answers there.
    """

    service: str | None = None
    flow: str | None = None
    request: str | None = None
    response: str | None = None


class ServiceTool(AgentTool):
    """The text of the responses is the observation."""

    Options = ServiceOptions

    def __init__(self, declaration: Tool, table: ToolConfig, client: Client[ToolRequest, ToolResponse]) -> None:
        super().__init__(declaration, table)
        self._client = client

    @classmethod
    @override
    async def open(
        cls, name: str, table: ToolConfig, options: ServiceOptions, context: ToolContext
    ) -> tuple[Self, ...]:
        client = Client(context.requestor, route_of(name, options, context))
        return (cls(declare(name, table, "", {"type": "object"}), table, client),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        request = ToolRequest(self.declaration.name, encode(arguments).decode())
        async with self._client.stream(request, timeout=self.table.timeout) as answers:
            async for answer in answers:
                yield answer.text or answer.object or ""


def route_of(name: str, options: ServiceOptions, context: ToolContext) -> Route[ToolRequest, ToolResponse]:
    """The route of the calls.

    Raises:
        BadRequest: a topic is malformed.
    """
    topics, flow, service = context.config.topics, options.flow or context.flow, options.service or name
    request = _topic("request", options.request) or topics.request(flow, service)
    response = _topic("response", options.response) or topics.response(flow, service)
    return Route(flow, TOOL, request, response, plain=options.response is not None)


def _topic(option: str, name: str | None) -> str | None:
    try:
        return resolve_topic(name) if name else None
    except ValueError:
        sentence = 'write a topic ("persistent://tenant/namespace/name") or a queue id ("request:tg:name")'
        raise BadRequest(sentence).at(option) from None
