"""A page or another plain answer -> its client, which reads it in time or is cut off."""

import asyncio

from aiohttp import web


async def write_in_time(request: web.Request, response: web.Response, seconds: float | None) -> None:
    """Write an answer, and cut off a client that has not read it in time.

    Args:
        request: what is answered.
        response: the answer.
        seconds: for all of it; None = its body bounds the time itself.
    """
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
