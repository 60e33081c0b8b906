"""HTTP handler -> dialect -> what is asked, in a worker process: a large body would hold up everybody here."""

from collections.abc import Awaitable
from typing import Any, Final

import structlog

from tg_base.runtime import Unpicklable, WorkerPool
from tg_gateway.dialects import Call, Dialect
from tg_gateway.parsing.packed_call import PackedAsk, PackedRefusal, Parsed, Question, pack_call, parse_packed
from tg_schema import TgError

log = structlog.get_logger()

MAX_PARSING_WORKERS: Final = 2
"""Large bodies that are parsed at the same time; further ones wait in turn."""


class CallParser:
    """Lets dialects parse; used and closed on one loop. No process is started before the first large body.

    Args:
        defect: what a client is told of a defect of its dialect.
    """

    def __init__(self, defect: str) -> None:
        self._defect = defect
        self._workers = WorkerPool(MAX_PARSING_WORKERS)

    async def parse(self, dialect: Dialect, call: Call) -> Parsed:
        """What a call with a large body asks. `call.body` and `call.kept` are set; `call.route` is set here.

        The request has its own copy of the body, as it travels. That of `call` would stay for as long as the answer
        takes: it is abridged, or empty where the other process did not answer.

        Raises:
            TgError: as `Dialect.parse`; Unavailable if the other process ended or cannot be started.
        """
        try:
            return await self._parse_apart(dialect, call)
        except Unpicklable as reason:
            # For instance a dialect of the program that runs the gateway: no other process can import it.
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
            return await getattr(call.kept, question.method)(question.name)

        try:
            result = await self._workers.call(parse_packed, dialect, pack_call(call), self._defect, answer=answer)
        except TgError:
            call.body = b""
            raise
        if not isinstance(result, PackedAsk | PackedRefusal):
            return result
        call.body = result.body
        # Before a refusal is raised: the log says for which service it was.
        if result.service is not None:
            call.route = call.catalogue.find_service(*result.service)
        if isinstance(result, PackedRefusal):
            raise result.error
        return result.unpack(call.catalogue)
