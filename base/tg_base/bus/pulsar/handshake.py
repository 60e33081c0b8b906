"""Address and token -> why the broker refuses us, or how large a message may be: one connection of Pulsar's protocol.

The client library retries even what cannot succeed, such as a wrong token or an HTTP port, and then reports only a
timeout. Nor does it expose the broker's limit. This module asks the broker once, and turns a refusal into an error
message.
"""

import contextlib
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from tg_base.bus.pulsar.wire import connect_command, read_error, read_max_message, receive_reply

_METADATA_ERROR, _PERSISTENCE_ERROR, _AUTHENTICATION_ERROR, _NO_SUBSCRIPTION, _NOT_ALLOWED_ERROR = 1, 2, 3, 12, 22
"""`ServerError` of PulsarApi.proto."""

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
_UNSUBSCRIBED = (
    "the broker creates no subscriptions by itself (allowAutoSubscriptionCreation); an operator must allow that, or "
    "create this one (pulsar-admin topics create-subscription)"
)
_UNENCRYPTED = (
    "the broker takes encrypted messages only, and ours are not; an operator must allow others (encryptionRequired)"
)
_UNSTORED = "the broker cannot store anything; an operator must look after its bookies and their disks"


class Refusal(NamedTuple):
    """Why a broker refuses us.

    Attributes:
        sentence: what to do; without secrets.
        lasting: whether every retry fails in the same way, until an operator has changed something.
    """

    sentence: str
    lasting: bool


def shake_hands(
    host: str,
    port: int,
    token: str | None,
    *,
    tls: bool,
    authorities: Path | None,
    timeout: float,
    opening: bytes | None = None,
) -> Refusal | int | None:
    """Connect once, as the client does; blocks.

    Args:
        host: the broker's.
        port: the broker's.
        token: the token that the client sends; None = nothing.
        tls: whether the client uses TLS.
        authorities: PEM file of the authorities whose certificates are trusted; None = the public ones.
        timeout: seconds for each of connecting, the handshake of TLS, and a reply.
        opening: a command of `wire` to send after a successful handshake: the one that the client was refused.

    Returns:
        Why the broker refuses us, or the bytes that a message may have there; None = the broker reports neither.
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
            connection.sendall(connect_command(token))
            reply = receive_reply(connection)
            refusal = _read_reply(reply, token, tls=tls)
            if refusal is not None or opening is None:
                return refusal or read_max_message(reply)
            connection.sendall(opening)
            return _read_opened(receive_reply(connection))
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
    error = read_error(reply)
    if error is not None and error.code == _AUTHENTICATION_ERROR:
        return Refusal(_REJECTED if token else _UNAUTHENTICATED, lasting=True)
    return Refusal(_TOO_MANY, lasting=False) if error is not None and error.code == _NOT_ALLOWED_ERROR else None


def _read_opened(reply: bytes) -> Refusal | None:
    """The broker's refusal of an opening, if it is an error that the client would retry until its timeout."""
    error = read_error(reply)
    if error is None:
        return None
    if error.code == _NO_SUBSCRIPTION:
        return Refusal(_UNSUBSCRIBED, lasting=True)
    if error.code == _PERSISTENCE_ERROR:
        return Refusal(_UNSTORED, lasting=False)
    encrypted = error.code == _METADATA_ERROR and b"encrypt" in error.text.lower()
    return Refusal(_UNENCRYPTED, lasting=True) if encrypted else None
