"""Agent -> a service on the bus as a tool: a model, a prompt template, or any service that answers tool records."""

from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar, Self

from typing_extensions import override

from tg_base.client import Client, prompt_request
from tg_base.config import ToolConfig
from tg_base.protocol import Route
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, cut_note, declare
from tg_schema import (
    PROMPT,
    TEXT_COMPLETION,
    PromptResponse,
    TextCompletionRequest,
    TextCompletionResponse,
    Tool,
    Usage,
    encode,
)
from tg_schema.errors import BadRequest
from tg_schema.service_spec import TOOL
from tg_schema.tool import ToolRequest
from tg_schema.topics import resolve_topic


class ServiceOptions(ToolOptions, frozen=True):
    """The address of the service.

    Attributes:
        service: its name in this flow's topics; default: the tool's name.
        flow: another flow, in place of this one.
        request: the topic of its requests, in place of the flow's.
        response: the topic of its responses, for a plain peer that answers there, such as TrustGraph's services.
    """

    service: str | None = None
    flow: str | None = None
    request: str | None = None
    response: str | None = None


class ServiceTool(AgentTool):
    """Any service that answers tool records, in any process and language. Its text is streamed as the observation."""

    Options: ClassVar[type[ToolOptions]] = ServiceOptions
    description: ClassVar[str] = ""
    arguments: ClassVar[dict[str, Any]] = {"type": "object"}

    def __init__(self, declaration: Tool, table: ToolConfig, client: Client[Any, Any], options: Any) -> None:
        super().__init__(declaration, table)
        self._client = client
        self._options = options

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: Any, context: ToolContext) -> tuple[Self, ...]:
        client = cls.find_client(name, options, context)
        return (cls(declare(name, table, cls.description, cls.arguments), table, client, options),)

    @classmethod
    def find_client(cls, name: str, options: Any, context: ToolContext) -> Client[Any, Any]:
        """A client of the service. Raises BadRequest if there is none, or a topic is malformed."""
        topics, flow, service = context.config.topics, options.flow or context.flow, options.service or name
        request = _topic("request", options.request) or topics.request(flow, service)
        response = _topic("response", options.response) or topics.response(flow, service)
        return Client(context.requestor, Route(flow, TOOL, request, response, plain=options.response is not None))

    def make_request(self, arguments: dict[str, Any]) -> Any:
        """The request of a call."""
        return ToolRequest(self.declaration.name, encode(arguments).decode())

    def read(self, answer: Any) -> Iterator[Piece]:
        """The pieces of the observation that a record of the answer adds."""
        yield answer.text or answer.object or ""

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        async with self._client.stream(self.make_request(arguments), timeout=self.table.timeout) as answers:
            async for answer in answers:
                for piece in self.read(answer):
                    yield piece


class CompletionOptions(ToolOptions, frozen=True):
    """`system`: the system text for the model. `flow`: the flow of the model; default: the agent's own."""

    system: str = ""
    flow: str | None = None


class CompletionTool(ServiceTool):
    """A model as a tool. Its argument is `prompt`; further arguments are given to the model as JSON."""

    Options = CompletionOptions
    description = "Asks a language model."
    arguments: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"prompt": {"type": "string"}},
        "required": ["prompt"],
        "additionalProperties": False,
    }

    @classmethod
    @override
    def find_client(cls, name: str, options: Any, context: ToolContext) -> Client[Any, Any]:
        return context.client(TEXT_COMPLETION.name, options.flow)

    @override
    def make_request(self, arguments: dict[str, Any]) -> TextCompletionRequest:
        prompt = arguments.get("prompt")
        text = prompt if isinstance(prompt, str) and len(arguments) == 1 else encode(arguments).decode()
        return TextCompletionRequest(self._options.system, text, streaming=True)

    @override
    def read(self, answer: TextCompletionResponse) -> Iterator[Piece]:
        return _read_counted(answer, answer.response)


class PromptOptions(ToolOptions, frozen=True):
    """`template`: its id; default: the tool's name. `flow`: the flow of the prompts; default: the agent's own."""

    template: str | None = None
    flow: str | None = None


class PromptTool(ServiceTool):
    """A prompt template as a tool; the arguments are its variables."""

    Options = PromptOptions

    @classmethod
    @override
    def find_client(cls, name: str, options: Any, context: ToolContext) -> Client[Any, Any]:
        return context.client(PROMPT.name, options.flow)

    @override
    def make_request(self, arguments: dict[str, Any]) -> Any:
        return prompt_request(self._options.template or self.declaration.name, arguments, streaming=True)

    @override
    def read(self, answer: PromptResponse) -> Iterator[Piece]:
        return _read_counted(answer, answer.text or answer.object)


def _read_counted(answer: TextCompletionResponse | PromptResponse, text: str | None) -> Iterator[Piece]:
    if answer.last:
        yield Usage(answer.in_token, answer.out_token)
    yield (text or "") + cut_note(answer.finish_reason)


def _topic(option: str, name: str | None) -> str | None:
    try:
        return resolve_topic(name) if name else None
    except ValueError:
        sentence = 'write a topic ("persistent://tenant/namespace/name") or a queue id ("request:tg:name")'
        raise BadRequest(sentence).at(option) from None
