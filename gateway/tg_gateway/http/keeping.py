"""A request's wish to keep its answer -> does the answer outlive the connection, and which requests share it."""

from dataclasses import replace
from typing import Final

from aiohttp import web

from tg_gateway.dialects import (
    IDEMPOTENCY_HEADER,
    KEEP_FIELD,
    KEEP_HEADER,
    Ask,
    Background,
    Batch,
    IdempotencyKey,
    Keeping,
    KeptStreams,
)
from tg_gateway.http.middleware import DOOR
from tg_gateway.jobs import NameTaken
from tg_gateway.relay import BeforeEnd
from tg_schema.errors import BadRequest, BusError, RateLimited, TooLarge, Unavailable

UNMADE: Final = (RateLimited, Unavailable, BusError, TooLarge, NameTaken)
"""Errors for which an answer cannot be made apart, although its request is right."""


def read_keeping(request: web.Request, asked: Ask, owner: str | None, on_whole: BeforeEnd) -> Keeping:
    """How a request over HTTP wants its answer kept.

    Args:
        request: the client's.
        asked: the request, or the batch of requests; a batch of a single request is given as that request.
        owner: the name of its API key.
        on_whole: as for `Keeping`.
    """
    return Keeping(request.headers.get(KEEP_HEADER), _find_key(request, asked, owner), on_whole=on_whole)


def _find_key(request: web.Request, asked: Ask, owner: str | None) -> IdempotencyKey | None:
    """The key that a request shares with its repetitions; None = there is no key, or nothing is generated."""
    digest, word = request[DOOR].call.digest, request.headers.get(IDEMPOTENCY_HEADER)
    first = asked.request.requests[0] if isinstance(asked.request, Batch) else asked.request
    if not digest or request.method != "POST" or getattr(first, "operation", None) is not None:
        return None
    if word is not None:
        return IdempotencyKey(IDEMPOTENCY_HEADER, owner, word, digest)
    # A client that sets how long its stream is kept resumes it by the stream's id.
    return None if KEEP_HEADER in request.headers else IdempotencyKey("", owner, digest, digest)


def plan_apart(
    asked: Ask, keeping: Keeping | None, door: str, streams: KeptStreams, *, stores: bool
) -> Background | None:
    """How the answer is made independently of its connection, at any door; None = it is not.

    Args:
        asked: the request.
        keeping: how the answer is kept; None = it is not kept.
        door: the name of the door.
        streams: keeps streams, and the answers of repeated requests.
        stores: whether answers may be kept for the key that asks.

    Raises:
        BadRequest: the client asks for what cannot be done.
    """
    background = asked.background
    if background is not None and not stores:
        raise BadRequest(f"{background.chosen or 'background'}: nothing is kept for a key with store = false")
    if keeping is None:
        return background
    key, period = keeping.key, asked.route.keep if keeping.period is None else keeping.period
    if key is None and period is None:
        return background
    try:
        single = stores and background is None and not isinstance(asked.request, Batch)
        if not (single and (key is not None or asked.streaming)):
            raise BadRequest(
                f"{KEEP_FIELD if key is None else key.field}: only the answer to one prompt is kept, as a stream "
                "unless requests repeat it; not for a key with store = false, nor in the background"
            )
        if key is None:
            kept = streams.keep(asked.writer, door, period or "", keeping.attach)
        else:
            asked.writer.fields = asked.fields
            door = door if keeping.attach is None else ""
            kept = streams.share(asked.writer, door, key, period, streaming=asked.streaming, on_whole=keeping.on_whole)
    except BadRequest:
        if keeping.demanded:
            raise
        return background
    return replace(kept, optional=not keeping.demanded)
