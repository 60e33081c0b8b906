"""What the log says of connections that end by a fault: one line each, what to do, and no flood."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.envoy.http2_peer import BEGINNING, connected, echo_server, opened
from tests.until import until
from tg_gateway.envoy.connection_faults import QUIET_SECONDS, FaultLog, explain_beginning
from tg_gateway.envoy.http2_frames import DATA, PING, PREFACE, ErrorCode, write_frame


def failures(lines: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return [line for line in lines if line["event"] == "picker.connection_failed"]


async def test_who_speaks_tls_is_told_of_in_the_log() -> None:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with capture_logs() as lines:
        async with asyncio.timeout(60), echo_server() as (server, address):
            host, _, port = address.rpartition(":")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(host, int(port), ssl=context)
            await until(lambda: not server.connections)
    (line,) = failures(lines)
    assert line["log_level"] == "warning"
    assert "the peer speaks TLS" in str(line["reason"])
    assert "transport_socket" in str(line["reason"])
    assert str(line["peer"]).startswith("127.0.0.1:")


@pytest.mark.parametrize("verb", ["GET", "POST", "PRI", "OPTIONS"])
async def test_who_speaks_http_1_is_told_of_without_what_it_sent(verb: str) -> None:
    asked = f"{verb} /secret HTTP/1.1\r\nauthorization: Bearer hidden\r\n\r\n".encode()
    with capture_logs() as lines:
        async with asyncio.timeout(60), echo_server() as (_, address), connected(address, asked) as peer:
            assert await peer.goaway() == ErrorCode.PROTOCOL_ERROR
    (line,) = failures(lines)
    assert "http2_protocol_options" in str(line["reason"])
    assert "hidden" not in str(line)
    assert "secret" not in str(line)


@given(data=st.binary(min_size=1).filter(lambda data: data[0] != PREFACE[0]), cut=st.integers(1, 30))
def test_what_is_said_of_a_beginning_does_not_depend_on_how_much_has_come(data: bytes, cut: int) -> None:
    assert explain_beginning(data) == explain_beginning(data[:cut])


async def test_a_fault_after_the_beginning_is_told_once() -> None:
    with capture_logs() as lines:
        sent = BEGINNING + write_frame(DATA, 0, 1, b"x") * 3
        async with asyncio.timeout(60), echo_server() as (_, address), connected(address, sent) as peer:
            assert await peer.goaway() == ErrorCode.PROTOCOL_ERROR
    assert [line["reason"] for line in failures(lines)] == ["stream 1 was never opened"]


async def test_one_connection_too_many_is_told_to_go_and_the_others_stay() -> None:
    with capture_logs() as lines:
        async with asyncio.timeout(60), echo_server() as (server, address):
            server.max_connections = 1
            async with connected(address) as first:
                await until(lambda: len(server.connections) == 1)
                async with connected(address, b"") as second:
                    assert await second.goaway() == ErrorCode.NO_ERROR
                    assert await second.frame() is None
                await until(lambda: len(server.connections) == 1)
                await first.send(write_frame(PING, 0, 0, b"12345678"))
                assert await first.next(PING)
            await until(lambda: not server.connections)
            async with connected(address) as third:
                await third.send(write_frame(PING, 0, 0, b"12345678"))
                assert await third.next(PING)
    (line,) = failures(lines)
    assert "raise max_connections" in str(line["reason"])


async def test_who_gives_no_sign_of_life_is_told_of() -> None:
    with capture_logs() as lines:
        async with asyncio.timeout(60), echo_server(keepalive=0.05) as (_, address), connected(address) as peer:
            while await peer.frame() is not None:
                pass
    (line,) = failures(lines)
    assert "no sign of life" in str(line["reason"])


async def test_who_reads_no_answers_is_told_of() -> None:
    pings = write_frame(PING, 0, 0, bytes(8)) * 30_000
    with capture_logs() as lines:
        async with asyncio.timeout(60), echo_server() as (server, address), connected(address) as peer:
            stream = 1
            while server.connections:
                await peer.send(opened(stream) + pings)
                stream += 2
                await asyncio.sleep(0)
    (line,) = failures(lines)
    assert "reads no answers" in str(line["reason"])


async def test_who_leaves_or_is_let_go_is_no_fault() -> None:
    with capture_logs() as lines:
        async with asyncio.timeout(60):
            async with echo_server(drain=30) as (server, address):
                async with connected(address) as peer:
                    await peer.send(opened(1))
                    await until(lambda: server.calls == 1)
                await until(lambda: not server.connections)
                async with connected(address, b"") as silent:
                    await until(lambda: len(server.connections) == 1)
                    await server.stop(30)
                    with suppress(AssertionError):
                        await silent.goaway()
    assert failures(lines) == []


def test_a_flood_of_faults_is_a_line_in_a_while_which_counts_the_others() -> None:
    now = [100.0]
    log = FaultLog(lambda: now[0])
    with capture_logs() as lines:
        for _ in range(5):
            log.tell("the peer speaks TLS", "192.0.2.1:1")
        now[0] += QUIET_SECONDS
        log.tell("the peer speaks HTTP/1", "192.0.2.1:2")
        now[0] += QUIET_SECONDS
        log.tell("the peer speaks HTTP/1", "192.0.2.1:3")
    shown = [(line["peer"], line["others"]) for line in lines if line["log_level"] == "warning"]
    assert shown == [("192.0.2.1:1", 0), ("192.0.2.1:2", 4), ("192.0.2.1:3", 0)]
    assert sum(line["log_level"] == "debug" for line in lines) == 4
