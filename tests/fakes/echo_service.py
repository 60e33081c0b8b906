"""EchoRequest -> EchoResponses: the service of docs/adding-a-service.md, which repeats a text."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Self

import msgspec
from typing_extensions import override

from tg_base.config import Config, ServiceConfig
from tg_base.server import Opened, ServeContext, Service, ServiceKind
from tg_schema import Error, ServiceSpec
from tg_schema.deltas import join_text
from tg_schema.errors import BadRequest
from tg_schema.pieces import cut_text, in_parts


class EchoRequest(msgspec.Struct, frozen=True):
    """What to say."""

    text: str = ""
    streaming: bool = False


class EchoResponse(msgspec.Struct, frozen=True):
    """A word, or all of them."""

    text: str | None = None
    error: Error | None = None
    end_of_stream: bool = False

    @property
    def last(self) -> bool:
        return self.end_of_stream

    @classmethod
    def from_error(cls, error: Error) -> Self:
        return cls(error=error, end_of_stream=True)

    @classmethod
    def join(cls, records: Sequence[Self]) -> Sequence[Self]:
        if len(records) < 2 or records[-1].error is not None:
            return records
        return (cls(join_text(record.text for record in records), end_of_stream=records[-1].end_of_stream),)

    def cut(self, size: int) -> Sequence[Self]:
        return in_parts(self, type(self)(), [{"text": piece} for piece in cut_text(self.text, size)])


ECHO = ServiceSpec("echo", EchoRequest, EchoResponse)


class EchoConfig(ServiceConfig, frozen=True):
    """The table [flows.NAME.echo]."""

    spec = ECHO
    greeting: str = ""
    times: Annotated[int, msgspec.Meta(gt=0, le=10)] = 1

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        if "\n" in self.greeting:
            yield config.fault("a greeting has one line; remove the others", "flows", flow, "echo", "greeting")


class EchoService(Service[EchoRequest, EchoResponse]):
    """The echo of one flow."""

    spec = ECHO

    def __init__(self, config: EchoConfig) -> None:
        self._config = config

    @override
    async def on_request(self, request: EchoRequest) -> AsyncGenerator[EchoResponse, None]:
        if not request.text:
            raise BadRequest("text is missing: send a JSON object with `text`")
        for word in (self._config.greeting, *request.text.split()):
            yield EchoResponse(f"{word} " * self._config.times if word else "")
        yield EchoResponse(end_of_stream=True)


class EchoKind(ServiceKind):
    """One processor for each flow that binds it."""

    table = EchoConfig

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        bound = context.config.bound(EchoConfig)
        for route in self.routes(context.config):
            yield Opened(EchoService(bound[route.flow]), (route,))
