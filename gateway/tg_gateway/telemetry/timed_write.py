"""A page or another plain answer -> its client, which is cut off if it does not read in time."""

import asyncio

from aiohttp import web


async def write_in_time(request: web.Request, response: web.StreamResponse, seconds: float | None) -> None:
    """Write an answer, and cut off a client that has not read it in time.

    Args:
        request: the request that is answered.
        response: the answer.
        seconds: time for the whole answer; None = its body bounds the time itself.
    """
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
