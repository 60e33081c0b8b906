"""Provider's answer -> bytes: entered and left, its failures in our words."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import msgspec

from tg_base.llm.core import retry_after, status_error
from tg_base.llm.http.stream_reader import UNREADABLE, Read
from tg_schema import TgError
from tg_schema.errors import IncompleteStream, ProtocolError, Timeout

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Bytes looked at of the body of an error, for its code."""

ERROR_BODY_TIMEOUT_SECONDS = 2.0
"""Seconds that the body of an error may take; its status is known, and says enough."""

_LONGEST_BODY = 4 * 1024 * 1024
_NO_STREAM = {"application/json", "text/html"}
_LATE = "the provider did not answer in time; ask again"
_LONG = "the provider's list is too long to be one; check base_url"


Method = Literal["GET", "POST"]


class HttpAnswer(Protocol):
    """One answer, whose body is still to be read; of a `tg_base.llm.http.pool.HttpPool`."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in any case."""

    @property
    def content_type(self) -> str:
        """In small letters, without parameters."""

    @property
    def encoded(self) -> bool:
        """Whether the body is compressed."""

    async def read(self) -> bytes:
        """What has arrived, at least one byte; nothing at the body's end. Raises IncompleteStream."""

    def close(self) -> None:
        """Let go of the answer; before the body's end that closes the socket."""


class ErrorDetail(msgspec.Struct, frozen=True):
    """What the body of an error says: the provider's word for it, and the seconds that it asks to wait."""

    word: str = ""
    wait: float | None = None


def no_detail(body: bytes) -> ErrorDetail:
    """Of a provider whose errors say nothing to programs beside their status."""
    return ErrorDetail()


@asynccontextmanager
async def open_body(
    call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail] = no_detail
) -> AsyncIterator[Read]:
    """Enter the body of an answer. Leaving before its end closes the socket.

    Args:
        call: what asks for it.
        error_detail: what the body of an error says besides its status; raises `UNREADABLE` where it says nothing.

    Raises:
        TgError: of `call`; its status is not 2xx, or it is no stream; in our own words.
    """
    answer = await call
    try:
        if not answer.good:
            raise await _make_error(answer, error_detail)
        if answer.content_type in _NO_STREAM:
            raise ProtocolError("the provider's answer is not a stream of events; check that base_url is an API's")
        yield answer.read
    finally:
        answer.close()


async def read_whole_body(
    call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail], patience: float = 60.0
) -> bytes:
    """The whole body of an answer that is no stream.

    Raises:
        Timeout: it has not come within `patience` seconds.
        ProtocolError: it has more than 4 MB.
        TgError: as of `open_body`.
    """
    try:
        async with asyncio.timeout(patience):
            answer = await call
            try:
                if not answer.good:
                    raise await _make_error(answer, error_detail)
                body = await _at_most(answer.read, _LONGEST_BODY)
            finally:
                answer.close()
    except TimeoutError:
        raise Timeout(_LATE) from None
    if len(body) > _LONGEST_BODY:
        raise ProtocolError(_LONG)
    return body


async def _make_error(answer: HttpAnswer, error_detail: Callable[[bytes], ErrorDetail]) -> TgError:
    """The error for a status that is not 2xx. Nothing of the body's text is passed on: it may hold anything."""
    said = ErrorDetail()
    if not answer.encoded:
        try:
            async with asyncio.timeout(ERROR_BODY_TIMEOUT_SECONDS):
                said = error_detail(await _at_most(answer.read, MAX_ERROR_BODY_BYTES))
        except (IncompleteStream, TimeoutError, *UNREADABLE):
            pass
    wait = retry_after(answer.headers)
    return status_error(answer.status, said.word, said.wait if wait is None else wait)


async def _at_most(read: Read, size: int) -> bytes:
    """A body, or its beginning with more than `size` bytes."""
    body = bytearray()
    while len(body) <= size and (part := await read()):
        body += part
    return bytes(body)
