"""Provider's HTTP answer -> bytes of its body; failures become our errors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
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
        code: the provider's own code for the error; "" = none.
        wait: seconds to wait before a retry.
        advice: how to solve the problem at this provider, as a clause; "" = nothing is known.
    """

    code: str = ""
    wait: float | None = None
    advice: str = ""


def no_detail(body: bytes) -> ErrorDetail:
    """For a provider whose errors have no machine-readable code besides the status."""
    return ErrorDetail()


async def begin_body(
    call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail] = no_detail
) -> HttpAnswer:
    """Open a streamed answer. The caller closes it; before the end of the body this closes the socket.

    Args:
        call: sends the request.
        error_detail: parses the body of an error; raises one of `UNREADABLE` if it cannot.

    Raises:
        TgError: as `call` raises, or because the status is not 2xx or the body is not a stream.
    """
    answer = await call
    if not answer.good:
        try:
            raise await _make_error(answer, error_detail)
        finally:
            answer.close()
    if answer.content_type in _NO_STREAM:
        answer.close()
        raise ProtocolError("the provider's answer is not a stream of events; check that base_url is an API's")
    answer.drop_head()
    return answer


@asynccontextmanager
async def open_body(
    call: Awaitable[HttpAnswer], error_detail: Callable[[bytes], ErrorDetail] = no_detail
) -> AsyncIterator[HttpAnswer]:
    """Enter the body of a streamed answer, and close it. The arguments and errors are those of `begin_body`."""
    with closing(await begin_body(call, error_detail)) as answer:
        yield answer


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
