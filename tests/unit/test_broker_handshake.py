"""What a port says to a client of Pulsar -> the sentence for the operator; `tests/connected` has the real broker."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.bus.pulsar.handshake import Refusal, shake_hands
from tg_base.bus.pulsar.wire import read_max_message

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2VjcmV0"


@contextmanager
def port_that_says(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port that reads one command, says this in single bytes, and closes."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:

        def serve() -> None:
            connection, _ = server.accept()
            # Who has heard enough leaves before the rest.
            with connection, suppress(ConnectionError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                heard.append(connection.recv(65536))
                for byte in reply:
                    connection.sendall(bytes([byte]))

        serving = thread.submit(serve)
        yield server.getsockname()[1], heard
        serving.result(10)


def answer_by(reply: bytes, token: str | None = TOKEN) -> Refusal | int | None:
    with port_that_says(reply) as (port, _):
        return shake_hands("127.0.0.1", port, token, tls=False, authorities=None, timeout=5)


def refusal_by(reply: bytes, token: str | None = TOKEN) -> Refusal | None:
    answer = answer_by(reply, token)
    return answer if isinstance(answer, Refusal) else None


def framed(command: bytes) -> bytes:
    return struct.pack(">II", len(command) + 4, len(command)) + command


def error(code: int, text: bytes = b"no") -> bytes:
    """`CommandError` as a broker writes it: the request -1 takes ten bytes."""
    body = b"\x08" + b"\xff" * 9 + b"\x01" + b"\x10" + bytes([code]) + b"\x1a" + bytes([len(text)]) + text
    return framed(b"\x08\x0e\x72" + bytes([len(body)]) + body)


CONNECTED = framed(b"\x08\x03\x1a\x08\x0a\x06Pulsar")
CONNECTED_SMALL = framed(b"\x08\x03\x1a\x0c\x0a\x06Pulsar\x18\x80\x80\x40")
"""With a limit of 1 MiB."""


@pytest.mark.parametrize(
    ("reply", "token", "why", "lasting"),
    [
        (error(3), TOKEN, "rejects our token", True),
        (error(3), None, "asks for a token", True),
        (error(22), TOKEN, "brokerMaxConnections", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TOKEN, "speaks HTTP", True),
        (b"\x15\x03\x03\x00\x02\x02\x28", TOKEN, "pulsar+ssl://", True),
        (b"", TOKEN, "pulsar+ssl://", False),
    ],
)
def test_what_is_said_becomes_a_sentence(reply: bytes, token: str | None, why: str, lasting: bool) -> None:
    refusal = refusal_by(reply, token)
    assert refusal is not None
    assert refusal.lasting is lasting
    assert why in refusal.sentence


@pytest.mark.parametrize(
    "reply", [CONNECTED, error(6), framed(b"\x08"), framed(b"\x09\xff"), b"SSH-2.0-x", b"\x00" * 9]
)
def test_what_says_nothing_of_us_is_no_refusal(reply: bytes) -> None:
    assert refusal_by(reply) is None


@given(st.integers(0, 2**31 - 1))
def test_a_broker_that_accepts_us_says_how_large_a_message_may_be(most: int) -> None:
    size = bytearray()
    while most >> 7 * len(size) > 127:
        size.append(most >> 7 * len(size) & 127 | 128)
    size.append(most >> 7 * len(size) & 127)
    connected = b"\x0a\x06Pulsar\x18" + size
    assert read_max_message(framed(b"\x08\x03\x1a" + bytes([len(connected)]) + connected)) == most


@pytest.mark.parametrize(
    ("reply", "most"), [(CONNECTED, 5 * 1024 * 1024), (CONNECTED_SMALL, 1024 * 1024), (error(6), None), (b"SSH", None)]
)
def test_a_limit_is_told_where_the_broker_accepts_us(reply: bytes, most: int | None) -> None:
    assert answer_by(reply) == most


def test_text_of_the_broker_is_not_repeated() -> None:
    """It may hold what the client has shown."""
    refusal = refusal_by(error(3, TOKEN[:100].encode()))
    assert refusal is not None
    assert TOKEN[:10] not in refusal.sentence


def test_a_port_that_nobody_listens_at_and_one_that_is_silent_are_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert shake_hands("127.0.0.1", port, None, tls=False, authorities=None, timeout=0.05) is None
    assert shake_hands("127.0.0.1", port, None, tls=False, authorities=None, timeout=0.05) is None


def test_it_asks_as_a_client_of_pulsar_does() -> None:
    with port_that_says(CONNECTED) as (port, heard):
        shake_hands("127.0.0.1", port, "t", tls=False, authorities=None, timeout=5)
    connect = b"\x0a\x09tokengrid\x20\x13\x1a\x01t\x2a\x05token"
    assert heard == [framed(b"\x08\x02\x12" + bytes([len(connect)]) + connect)]
