"""Address and token -> why the broker refuses us: one connection that speaks Pulsar's own protocol.

The client library retries even what cannot succeed, such as a wrong token or an HTTP port, and then reports only a
timeout. This module asks the broker once, and turns its reply into an error message.
"""

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_CONNECT, _ERROR = 2, 14
"""`BaseCommand.Type` of PulsarApi.proto, and the field of `BaseCommand` that holds such a command."""
_AUTHENTICATION_ERROR, _NOT_ALLOWED_ERROR = 3, 22
"""`ServerError` of PulsarApi.proto."""
_PROTOCOL_VERSION: Final = 19
"""The version of Pulsar 2.10. A broker accepts any version, and uses the lower of the two."""
MAX_REPLY_BYTES: Final = 16 * 1024
_VARINT, _BYTES = 0, 2

_UNAUTHENTICATED = "the broker asks for a token; set token_file or token_env of [bus.options]"
_REJECTED = "the broker rejects our token; an operator must configure a valid one that has not expired"
_TOO_MANY = (
    "the broker allows no further connection; an operator must raise brokerMaxConnections or brokerMaxConnectionsPerIp"
)
_NO_TLS = "the bus is configured with TLS, which this port does not speak; correct the port, or write pulsar://"
_TLS = "this port closes connections without TLS, as a TLS port does; correct the port, or write pulsar+ssl://"
_HTTP = "this port speaks HTTP; write the broker's binary port, by default 6650, or 6651 with TLS"
_BAD_CERTIFICATE = (
    "the broker's certificate is refused ({}); set trust_certs of [bus.options] to its authority, and name the host in "
    "the URL as the certificate does"
)


class Refusal(NamedTuple):
    """Why a broker refuses us.

    Attributes:
        sentence: what to do; without secrets.
        lasting: every retry fails in the same way, until an operator has changed something.
    """

    sentence: str
    lasting: bool


def find_refusal(
    host: str, port: int, token: str | None, *, tls: bool, authorities: Path | None, timeout: float
) -> Refusal | None:
    """Connect once, as the client does; blocks. None = the broker accepts us, or gives no reason.

    Args:
        host: the broker's.
        port: the broker's.
        token: what the client shows; None = nothing.
        tls: whether the client uses TLS.
        authorities: PEM file of the authorities whose certificates are trusted; None = the public ones.
        timeout: seconds for each of connecting, the handshake of TLS, and the reply.
    """
    try:
        context = ssl.create_default_context(cafile=authorities) if tls else None
    except OSError:
        return Refusal(f"the file {authorities} must hold the broker's certificate authorities (PEM)", lasting=True)
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout))
            if context is not None:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
            connection.sendall(_connect_command(token))
            return _read_reply(_receive(connection), token, tls=tls)
    except ssl.SSLCertVerificationError as error:
        return Refusal(_BAD_CERTIFICATE.format(error.verify_message), lasting=True)
    except (ssl.SSLError, ConnectionResetError) as error:
        answered = isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"
        closed = isinstance(error, ssl.SSLEOFError | ConnectionResetError)
        # A broker that shuts down closes connections too, so a closed one may not be lasting.
        return Refusal(_NO_TLS, lasting=answered) if tls and (answered or closed) else None
    except OSError:
        return None


def _read_reply(reply: bytes, token: str | None, *, tls: bool) -> Refusal | None:
    if reply.startswith(b"HTTP/"):
        return Refusal(_HTTP, lasting=True)
    if not reply or reply.startswith(b"\x15\x03"):
        # 15 03 begins a TLS alert. No reply at all may mean that the port expects TLS, or that the broker shuts down.
        return None if tls else Refusal(_TLS, lasting=bool(reply))
    error = _error_of(reply)
    if error == _AUTHENTICATION_ERROR:
        return Refusal(_REJECTED if token else _UNAUTHENTICATED, lasting=True)
    return Refusal(_TOO_MANY, lasting=False) if error == _NOT_ALLOWED_ERROR else None


def _receive(connection: socket.socket) -> bytes:
    """The broker's first command, or the first bytes of anything else that the peer sends."""
    reply = b""
    while len(reply) < MAX_REPLY_BYTES:
        part = connection.recv(MAX_REPLY_BYTES)
        reply += part
        if not part or (len(reply) >= 4 and len(reply) >= 4 + struct.unpack_from(">I", reply)[0]):
            break
    return reply


def _connect_command(token: str | None) -> bytes:
    """`CommandConnect` in its frame: both lengths, then the command."""
    connect = _field(1, b"tokengrid") + _number(4, _PROTOCOL_VERSION)
    if token is not None:
        connect += _field(3, token.encode()) + _field(5, b"token")
    command = _number(1, _CONNECT) + _field(_CONNECT, connect)
    return struct.pack(">II", len(command) + 4, len(command)) + command


def _error_of(reply: bytes) -> int | None:
    """The `ServerError` of a `CommandError`; None for any other reply."""
    try:
        found = dict(_fields(reply[8:])).get(_ERROR)
        code = dict(_fields(found)).get(2) if isinstance(found, bytes) else None
    except (IndexError, ValueError):
        return None
    return code if isinstance(code, int) else None


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
