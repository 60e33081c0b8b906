"""Provider's HTTP answer -> bytes of its body; failures become our errors."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import msgspec

from tg_base.llm.core import find_code, find_request_id, retry_after, status_error
from tg_base.llm.http.answer import HttpAnswer
from tg_base.llm.http.stream_reader import UNREADABLE, Read
from tg_schema import TgError
from tg_schema.errors import IncompleteStream, ProtocolError, Timeout

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Bytes read of an error's body, to find its code."""

ERROR_BODY_TIMEOUT_SECONDS = 2.0
"""Timeout of an error's body in seconds; after it the status alone decides."""

_MAX_BODY_BYTES = 4 * 1024 * 1024
_NO_STREAM = {"application/json", "text/html"}
_LATE = "the provider did not answer in time; ask again"
_LONG = "the provider's list is too long to be one; check base_url"


Method = Literal["GET", "POST"]


class ErrorDetail(msgspec.Struct, frozen=True):
    """The body of an error.

    Attributes:
        code: the provider's own for it; "" = none.
        wait: seconds to wait before a retry.
        advice: what helps at this provider, as a clause; "" = nothing is known.
    """

    code: str = ""
    wait: float | None = None
    advice: str = ""


def no_detail(body: bytes) -> ErrorDetail:
    """For a provider whose errors have no machine-readable code beside the status."""
    return ErrorDetail()


class OpenBody:
    """Context manager that yields a streamed answer, whose body is to be read: see `open_body`."""

    __slots__ = ("_answer", "_call", "_error_detail")

    # Not a generator: one for each request costs as much as writing it to the socket.
    def __init__(self, call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail]) -> None:
        self._call = call
        self._error_detail = error_detail
        self._answer: HttpAnswer | None = None

    async def __aenter__(self) -> HttpAnswer:
        answer = await self._call
        # Even a coroutine that has ended takes 256 bytes.
        del self._call
        entered = False
        try:
            if not answer.good:
                raise await _make_error(answer, self._error_detail)
            if answer.content_type in _NO_STREAM:
                raise ProtocolError("the provider's answer is not a stream of events; check that base_url is an API's")
            entered = True
        finally:
            if not entered:
                answer.close()
        answer.drop_head()
        self._answer = answer
        return answer

    async def __aexit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()


def open_body(call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail] = no_detail) -> OpenBody:
    """Enter the body of a streamed answer. Leaving before its end closes the socket.

    Args:
        call: sends the request.
        error_detail: parses the body of an error; raises one of `UNREADABLE` if it cannot.

    Raises:
        TgError: of `call`, for a status that is not 2xx, or for a body that is not a stream.
    """
    return OpenBody(call, error_detail)


async def read_whole_body(
    call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail], patience: float
) -> bytes:
    """The whole body of an answer that is not streamed.

    Raises:
        Timeout: it took more than `patience` seconds.
        ProtocolError: it is larger than 4 MiB.
        TgError: as `open_body`.
    """
    try:
        async with asyncio.timeout(patience):
            answer = await call
            try:
                if not answer.good:
                    raise await _make_error(answer, error_detail)
                body = await _at_most(answer.read, _MAX_BODY_BYTES)
            finally:
                answer.close()
    except TimeoutError:
        raise Timeout(_LATE) from None
    if len(body) > _MAX_BODY_BYTES:
        raise ProtocolError(_LONG)
    return body


async def _make_error(answer: HttpAnswer, error_detail: Callable[[bytes], ErrorDetail]) -> TgError:
    """The error for a status that is not 2xx. The body's text is never passed on: it may contain prompts or keys."""
    detail, body = ErrorDetail(), b""
    # A compressed body is never inflated; then the status alone decides.
    if not answer.encoded:
        with suppress(IncompleteStream, TimeoutError, *UNREADABLE):
            async with asyncio.timeout(ERROR_BODY_TIMEOUT_SECONDS):
                body = await _at_most(answer.read, MAX_ERROR_BODY_BYTES)
                detail = error_detail(body)
    wait = retry_after(answer.headers)
    wait = detail.wait if wait is None else wait
    text, request_id = body.decode(errors="replace"), find_request_id(answer.headers)
    code = detail.code or find_code(answer.headers)
    return status_error(answer.status, code, wait, detail.advice, text, request_id=request_id)


async def _at_most(read: Read, size: int) -> bytes:
    """A body, or at least its first `size + 1` bytes."""
    body = bytearray()
    while len(body) <= size and (part := await read()):
        body += part
    return bytes(body)
