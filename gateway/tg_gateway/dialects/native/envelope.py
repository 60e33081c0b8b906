"""WebSocket message <-> values: the multiplexer's envelope, as TrustGraph's clients speak it.

    client: {"type":"auth","token"}   {"id","service","flow"?,"request","keep"?,"request_key"?}   {"id","cancel":true}
            {"id","attach","offset"?}
    server: {"type":"auth-ok","default_workspace"}   {"type":"auth-failed","error"}
            {"id","stream","complete":false}: to `keep`, at once
            {"id","stream"?,"offset"?,"response","complete"}*
            {"id","error":{"message","type","retry_after"?},"complete":true}
            {"error":{"message","type"},"complete":false}: a message with the id of a running request was refused

`cancel`, `attach`, `keep`, `request_key`, `stream`, `offset` and `retry_after` (seconds) are ours. An error always
stands in the envelope, never inside `response`: all clients understand that form.
"""

import re
from typing import Annotated, Any, Final

import msgspec

from tg_base.runtime import MAX_QUICK_BYTES
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest

Id = str | int
"""Chosen by the client, and returned unchanged."""
ENVELOPE_BYTES: Final = 64 * 1024
"""Most bytes of a message in addition to its request."""
_SEARCHED_BYTES: Final = 4096
_ID: Final = rb'"id"\s*:\s*("(?:[^"\\]|\\.)*+"|-?\d+)\s*'
_FIRST_ID: Final = re.compile(rb"\s*\{\s*" + _ID + rb"[,}]")
_LAST_ID: Final = re.compile(rb"[{,]\s*" + _ID + rb"\}\s*\Z")
AUTH_OK = b'{"type":"auth-ok","default_workspace":"default"}'


class Envelope(msgspec.Struct, frozen=True):
    """One message of a client; unknown keys (`workspace`) are ignored."""

    id: Id | None = None
    type: str | None = None
    token: str | None = None
    service: str | None = None
    flow: str | None = None
    request: msgspec.Raw = msgspec.Raw()
    request_key: str | None = None
    cancel: bool = False
    attach: str | None = None
    keep: str | None = None
    offset: Annotated[int, msgspec.Meta(ge=-1, le=10**12)] = -1


class _Id(msgspec.Struct, frozen=True):
    id: Any = None


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    message: str
    type: str
    retry_after: float | None = None


class _Error(msgspec.Struct, frozen=True):
    error: _Message
    complete: bool


def id_of(message: bytes) -> Id | None:
    """The id of an otherwise malformed message, so that its sender knows which one failed.

    A large message is not parsed for it: only an id at its start or end is found.
    """
    if len(message) > MAX_QUICK_BYTES:
        found = _FIRST_ID.match(message[:_SEARCHED_BYTES]) or _LAST_ID.search(message[-_SEARCHED_BYTES:])
        if found is None:
            return None
        message = b'{"id":%b}' % found[1]
    try:
        name = decode(_Id, message).id
    except BadRequest:
        return None
    # In Python, `true` is a number too.
    return name if isinstance(name, str | int) and not isinstance(name, bool) else None


def auth_failed(error: TgError) -> bytes:
    """The answer to a wrong token; the socket stays open for another try."""
    return b'{"type":"auth-failed","error":%b}' % encode(error.message)


def opening(request: Id) -> bytes:
    """The beginning of every response to a request, passed to `response` and `failure`."""
    return b'{"id":%b,' % encode(request)


def kept(opened: bytes, stream: str) -> bytes:
    """The message that reports the id under which a response is kept."""
    return b'%b"stream":%b,"complete":false}' % (opened, encode(stream))


def response(opened: bytes, body: bytes, *, last: bool) -> bytes:
    """One response. `body` is its JSON."""
    return b'%b"response":%b,"complete":%b}' % (opened, body, b"true" if last else b"false")


def failure(opened: bytes, error: TgError, kind: str) -> bytes:
    """The last response of a request that failed; `opened` as `opening` begins it, or `{` if the message had no id."""
    return opened + encode(_Error(_Message(error.message, kind, error.retry_after), complete=True))[1:]


def aside(running: Id, error: TgError, kind: str) -> bytes:
    """The refusal of a message whose id belongs to a request that still runs.

    It has no `id` field: a client would end the request with that id. The text of the message names the id instead.
    """
    sentence = f"a message with the id {encode(running).decode()}, whose request goes on, was refused: {error.message}"
    return encode(_Error(_Message(sentence, kind, error.retry_after), complete=False))
