"""One call -> its records. A call that fails before its first record is repeated; a kept stream is resumed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Generic, Self

from typing_extensions import override

from tg_client.transport import Deadline, HttpTransport, Position, Retries
from tg_schema import ServiceSpec, TgError
from tg_schema.errors import BadRequest, Timeout
from tg_schema.service_spec import Req, Resp


class RecordStream(AbstractAsyncContextManager["RecordStream[Resp]"], AsyncIterator[Resp], Generic[Resp]):
    """One answer: enter it with `async with`, once. Leaving it stops what still runs, even a kept stream.

    In one case a kept stream goes on: its connection is lost for good, which raises an error. Its reader can resume it
    with `TgClient.attach`.

    Args:
        ask: sends the request, unless `position` names a kept stream.
        is_lost: whether the transport has ended.
        spec: the service.
        http: the transport that resumes a kept stream, and stops it.
        position: where the stream begins.
        timeout: seconds to the first record, all attempts included, and between two records.
        retries: how often the call is repeated.
        stops: whether leaving the stream also stops a kept one.

    Attributes:
        position: what has been received.
        entered: whether the stream was begun.

    Raises (when it is entered):
        TgError: the gateway cannot be reached or refuses.
        BadRequest: the stream was begun before; each call is one stream.
    """

    def __init__(
        self,
        ask: Callable[[Deadline, Position], AbstractAsyncContextManager[AsyncIterator[Resp]]],
        is_lost: Callable[[], bool],
        spec: ServiceSpec[Req, Resp],
        http: HttpTransport,
        position: Position,
        *,
        timeout: float,
        retries: Retries,
        stops: bool = True,
    ) -> None:
        self.position = position
        self._ask = ask
        self._is_lost = is_lost
        self._spec = spec
        self._http = http
        self._timeout = timeout
        self._retries = retries
        self._stops = stops
        self.entered = False
        self._stack = AsyncExitStack()
        self._begun = position.goes_on
        self._broken = self._direct = False

    @override
    async def __aenter__(self) -> Self:
        if self.entered:
            raise BadRequest("this stream was begun before: make the call again for another one")
        self.entered = True
        self._clock = Deadline(self._timeout, self._http.idle)
        await self._open()
        return self

    @override
    def __anext__(self) -> Awaitable[Resp]:
        # If the stream is not kept, its reader gets all records but the first without this layer.
        return self._records.__anext__() if self._direct else self._next()

    async def _next(self) -> Resp:
        try:
            record = await self._retries.repeat(self._clock, self._attempt, self._is_over)
        except TgError as error:
            # After a timeout the reader has given up, so stop the stream. After a lost connection it may come back.
            self._direct, self._stops = True, self._stops and isinstance(error, Timeout)
            raise
        self._begun, self._direct = True, not self.position.goes_on
        return record

    def _is_over(self) -> bool:
        return self._http.lost if self.position.goes_on else self._begun or self._is_lost()

    async def _attempt(self) -> Resp:
        if self._broken:
            await self._stack.aclose()
            await self._open()
        self._broken = False
        try:
            return await anext(self._records)
        except TgError:
            self._broken = True
            raise

    async def _open(self) -> None:
        self._records = await self._stack.enter_async_context(
            self._http.attach(self._spec, self._clock, self.position)
            if self.position.goes_on
            else self._ask(self._clock, self.position)
        )

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(kind, error, tb)
        finally:
            if self._stops and self.position.goes_on:
                await self._http.cancel(self.position)
