"""HTTP handler -> dialect -> its request, parsed in a worker process: here a large body would delay everybody."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from typing_extensions import override

from tg_base.protocol import EncodedRequest, Route
from tg_base.runtime import Unpicklable, WorkerPool, ask_caller, translate_defects
from tg_gateway.dialects import (
    NO_FIGURES,
    NO_STREAMS,
    Answer,
    Ask,
    Batch,
    Call,
    Dialect,
    KeptAnswer,
    KeptAnswers,
    StreamedAnswer,
)
from tg_schema import ServiceSpec, TextCompletionRequest, TgError
from tg_schema.errors import Internal

log = structlog.get_logger()

Parsed = Ask | Answer | StreamedAnswer


@dataclass(frozen=True, slots=True)
class Packed:
    """The result of parsing, in the form that is sent between processes.

    Attributes:
        asked: an ask with an encoded request, or the error that refuses the call.
        route: the route, if it was known by then.
        body: the abridged body.
    """

    asked: Ask | TgError
    route: Route[Any, Any] | None
    body: bytes


Question = tuple[str, str]
"""A call of a method of `Call.kept`: the method's name and its argument."""


class _CallersAnswers(KeptAnswers):
    """The kept answers of the request's key, fetched from the process that has them. None can be followed."""

    @override
    async def read(self, name: str) -> KeptAnswer:
        return self._ask("read", name)

    @override
    async def cancel(self, name: str, head: bytes | None = None) -> KeptAnswer:
        return self._ask("cancel", name)

    @override
    async def erase(self, name: str) -> None:
        ask_caller(("erase", name))

    def _ask(self, method: str, name: str) -> KeptAnswer:
        kept: KeptAnswer = ask_caller((method, name))
        return kept


def _encode(spec: ServiceSpec[Any, Any], request: Any) -> Any:
    """Encodes requests for completions for the bus.

    Other requests are small, and are checked against the key's rights.
    """
    return EncodedRequest.of(spec, request) if isinstance(request, TextCompletionRequest) else request


def pack_call(call: Call) -> Call:
    """A copy that can be pickled. Its mappings find names as the server's do: in any case, the first of several."""
    # The server's mappings are read-only proxies, which cannot be pickled; their copies can.
    headers: Any = call.headers
    query: Any = call.query
    return replace(
        call,
        catalogue=call.catalogue.copy(),
        headers=headers.copy(),
        path=dict(call.path),
        query=query.copy(),
        kept=_CallersAnswers(),
        live=NO_FIGURES,
        streams=NO_STREAMS,
    )


def parse_packed(dialect: Dialect, call: Call, defect: str) -> Packed | Answer | StreamedAnswer:
    """Parse a call; runs in a worker process. A defect of the dialect is logged, and refused with this message."""
    try:
        with translate_defects(Internal, defect, "gateway.defect", log):
            parsed = dialect.parse(call)
            asked = asyncio.run(_await(parsed)) if isinstance(parsed, Awaitable) else parsed
            if not isinstance(asked, Ask):
                return asked
            return Packed(_pack(asked), asked.route, dialect.abridge(call.body))
    except TgError as error:
        return Packed(error, call.route, dialect.abridge(call.body))


def _pack(ask: Ask) -> Ask:
    request, spec = ask.request, ask.route.spec
    if isinstance(request, Batch):
        request = replace(request, requests=tuple(_encode(spec, each) for each in request.requests))
    return replace(ask, request=_encode(spec, request))


async def _await(parsed: Awaitable[Parsed]) -> Parsed:
    return await parsed


MAX_PARSING_WORKERS: Final = 2
"""Large bodies that are parsed at the same time; further ones wait in turn."""


class CallParser:
    """Lets dialects parse; used and closed on one loop. No process is started before the first large body.

    Args:
        defect: the message for a client if its dialect has a defect.
    """

    def __init__(self, defect: str) -> None:
        self._defect = defect
        self._workers = WorkerPool(MAX_PARSING_WORKERS)

    async def parse(self, dialect: Dialect, call: Call) -> Parsed:
        """The request of a call with a large body. `call.body` and `call.kept` are set; `call.route` is set here.

        The request has its own copy of the body, as it travels. The body in `call` would stay in memory for as long as
        the answer takes, so it is abridged, or emptied if the other process did not answer.

        Raises:
            TgError: as `Dialect.parse`; Unavailable if the other process ended or cannot be started.
        """
        try:
            return await self._parse_apart(dialect, call)
        except Unpicklable as reason:
            # For instance, no other process can import a dialect defined in the program that runs the gateway.
            log.warning("gateway.large_body_here", dialect=type(dialect).__name__, reason=str(reason))
        try:
            parsed = dialect.parse(call)
            return await parsed if isinstance(parsed, Awaitable) else parsed
        finally:
            call.body = dialect.abridge(call.body)

    async def aclose(self) -> None:
        """End the worker processes."""
        await self._workers.aclose()

    async def _parse_apart(self, dialect: Dialect, call: Call) -> Parsed:
        async def answer(question: Question) -> Any:
            method, name = question
            return await getattr(call.kept, method)(name)

        try:
            result = await self._workers.call(parse_packed, dialect, pack_call(call), self._defect, answer=answer)
        except TgError:
            call.body = b""
            raise
        if not isinstance(result, Packed):
            return result
        call.body = result.body
        # Set it before a refusal is raised, so that the log names the service.
        call.route = result.route or call.route
        if isinstance(result.asked, TgError):
            raise result.asked
        return result.asked
