"""Commands of Pulsar's own protocol <-> bytes: what the client library does not report of a broker.

Numbers are those of PulsarApi.proto: in `BaseCommand`, a command is in the field whose number is the command's type.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_CONNECT, _CONNECTED, _SUBSCRIBE, _PRODUCER, _ERROR = 2, 3, 4, 5, 14
"""`BaseCommand.Type`."""
_SHARED, _EARLIEST = 1, 1
"""`CommandSubscribe.SubType`, `CommandSubscribe.InitialPosition`."""
_PROTOCOL_VERSION: Final = 19
"""The version of Pulsar 2.10. A broker accepts any version, and uses the lower of the two."""
MAX_REPLY_BYTES: Final = 16 * 1024
DEFAULT_MESSAGE_BYTES: Final = 5 * 1024 * 1024
"""The message limit of a broker that reports none."""
_VARINT, _BYTES = 0, 2


class ServerError(NamedTuple):
    """A `CommandError`: the code, an enum of the protocol's, and the broker's own text."""

    code: int
    text: bytes


def connect_command(token: str | None) -> bytes:
    """`CommandConnect` in its frame; `token` is the token that the client sends."""
    connect = _field(1, b"tokengrid") + _number(4, _PROTOCOL_VERSION)
    if token is not None:
        connect += _field(3, token.encode()) + _field(5, b"token")
    return _frame(_CONNECT, connect)


def subscribe_command(topic: str, group: str) -> bytes:
    """`CommandSubscribe` in its frame, as the client sends it for a group; it asks for no message."""
    names = _field(1, topic.encode()) + _field(2, group.encode())
    return _frame(_SUBSCRIBE, names + _number(3, _SHARED) + _number(4, 1) + _number(5, 1) + _number(13, _EARLIEST))


def producer_command(topic: str) -> bytes:
    """`CommandProducer` in its frame."""
    return _frame(_PRODUCER, _field(1, topic.encode()) + _number(2, 1) + _number(3, 1))


def receive_reply(connection: socket.socket) -> bytes:
    """The next command of the broker, or the beginning of anything else that is sent; blocks."""
    reply = b""
    while len(reply) < MAX_REPLY_BYTES:
        part = connection.recv(MAX_REPLY_BYTES)
        reply += part
        if not part or (len(reply) >= 4 and len(reply) >= 4 + struct.unpack_from(">I", reply)[0]):
            break
    return reply


def read_error(reply: bytes) -> ServerError | None:
    """The error in a reply; None = the reply has none."""
    fields = _find_command(reply, _ERROR) or {}
    code, text = fields.get(2), fields.get(3, b"")
    return ServerError(code, text) if isinstance(code, int) and isinstance(text, bytes) else None


def read_max_message(reply: bytes) -> int | None:
    """`max_message_size` of a `CommandConnected`, in bytes; None = the reply is not one."""
    fields = _find_command(reply, _CONNECTED)
    size = None if fields is None else fields.get(3, DEFAULT_MESSAGE_BYTES)
    return size if isinstance(size, int) else None


def _find_command(reply: bytes, kind: int) -> dict[int, int | bytes] | None:
    """The fields of the reply's command, if it is of this type."""
    try:
        found = dict(_fields(reply[8:])).get(kind)
        return dict(_fields(found)) if isinstance(found, bytes) else None
    except (IndexError, ValueError):
        return None


def _frame(kind: int, body: bytes) -> bytes:
    """Both lengths, then the command."""
    command = _number(1, kind) + _field(kind, body)
    return struct.pack(">II", len(command) + 4, len(command)) + command


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a protobuf message.

    Raises:
        IndexError, ValueError: the bytes are not a protobuf message.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _BYTES:
            yield tag >> 3, message[at : at + value]
            at += value
        else:
            raise ValueError("these commands have no other wire type")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value
