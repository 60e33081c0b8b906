"""Request -> the records of its answer, which is asked for when this is entered."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic

from typing_extensions import override

from tg_client.begun_once import BegunOnce
from tg_schema.service_spec import Resp


class RecordStream(AbstractAsyncContextManager[AsyncIterator[Resp]], Generic[Resp]):
    """One answer: enter it with `async with`, once. Leaving it stops what still runs.

    Raises (when it is entered):
        TgError: the gateway cannot be asked.
        BadRequest: it has begun before; every call is one stream.
    """

    def __init__(self, opened: AbstractAsyncContextManager[AsyncIterator[Resp]]) -> None:
        self._opened = opened
        self._once = BegunOnce("stream", "ask again")

    @override
    async def __aenter__(self) -> AsyncIterator[Resp]:
        self._once.begin()
        return await self._opened.__aenter__()

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, tb)
