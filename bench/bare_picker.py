"""Envoy -> one fixed address without gRPC: what is left of a picker's cost is Envoy's own part.

    python -m bench.bare_picker --listen 127.0.0.1:9002 --server 127.0.0.1:8001   prints a line when it listens

It knows neither HTTP/2 nor protobuf: it cuts frames (RFC 9113, section 4.1) and looks at the first byte of each
message, which says what is asked; the answers are bytes made before. It checks nothing, and is no server for anybody
but the bench's own Envoy.
"""

import argparse
import asyncio
from functools import partial
from typing import cast

import uvloop
from typing_extensions import override

from bench.fixed_picker import Nobody
from tg_picker.extproc import messages
from tg_picker.extproc.decision import Directed

PREFACE_BYTES = 24
FRAME_HEADER_BYTES = 9
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM = ACK = 1
END_HEADERS = 4
REQUEST_HEADERS, REQUEST_BODY, RESPONSE_BODY = 0x12, 0x22, 0x2A
"""The first byte of a message: the number of its field in `ProcessingRequest`, and that it is a message itself."""
DUPLEX = b"\x5a\x04\x08\x04\x10\x04"
"""`protocol_config`: both bodies FULL_DUPLEX_STREAMED."""
WINDOW = 2**31 - 1
LEFT_WINDOW = 2**30
"""What is left of the connection's window when it is opened again."""
OPENING = b"\x88\x0f\x10\x10application/grpc"
"""HPACK: `:status: 200`, and `content-type` by its static name, not indexed."""
CLOSING = b"\x00\x0bgrpc-status\x010"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def grpc_message(message: bytes) -> bytes:
    """With gRPC's prefix: not compressed, and its length."""
    return b"\0" + len(message).to_bytes(4) + message


def field(number: int, value: bytes) -> bytes:
    """Protobuf: a field that has a length."""
    length, size = bytearray(), len(value)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | 2, *length, size)) + value


def sent_back(message: bytes) -> bytes:
    """The answer to a piece of a body in duplex mode: the piece, whose message has the same form both ways."""
    start, size, shift = 1, 0, 0
    while True:
        byte = message[start]
        start += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    piece = message[start : start + size]
    # BodyResponse.response, CommonResponse.body_mutation, BodyMutation.streamed_response.
    response = field(1, field(3, field(3, piece)))
    # The field of a request's body is 4 in what is asked and 3 in what is answered, that of a response's 5 and 4.
    return field((message[0] >> 3) - 1, response)


class BareConnection(asyncio.Protocol):
    """One connection of Envoy's.

    Args:
        server: the address that every request is sent to.
    """

    def __init__(self, server: str) -> None:
        directed = Directed((server,), Nobody())
        self._headers = grpc_message(messages.direct("request_headers", directed).SerializeToString())
        kept = {
            REQUEST_HEADERS: messages.NOTHING_FOR["request_headers"],
            REQUEST_BODY: messages.direct("request_body", directed),
            0x1A: messages.NOTHING_FOR["response_headers"],
            RESPONSE_BODY: messages.NOTHING_FOR["response_body"],
            0x32: messages.NOTHING_FOR["request_trailers"],
            0x3A: messages.NOTHING_FOR["response_trailers"],
        }
        self._kept = {kind: grpc_message(answer.SerializeToString()) for kind, answer in kept.items()}
        self._unread = b""
        self._begun = False
        self._messages: dict[int, bytes] = {}
        self._opened: set[int] = set()
        self._duplex: set[int] = set()
        self._window = WINDOW

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        settings = b"\0\x04" + WINDOW.to_bytes(4) + b"\0\x03" + (10_000).to_bytes(4)
        opened = frame(8, 0, 0, (WINDOW - 65_535).to_bytes(4))
        self._transport.write(frame(SETTINGS, 0, 0, settings) + opened)

    @override
    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        at = 0
        if not self._begun:
            if len(data) < PREFACE_BYTES:
                self._unread = data
                return
            self._begun, at = True, PREFACE_BYTES
        out: list[bytes] = []
        while len(data) >= at + FRAME_HEADER_BYTES:
            head = int.from_bytes(data[at : at + FRAME_HEADER_BYTES])
            end = at + FRAME_HEADER_BYTES + (head >> 48)
            if len(data) < end:
                break
            payload = data[at + FRAME_HEADER_BYTES : end]
            self._take(head >> 40 & 0xFF, head >> 32 & 0xFF, head & 0x7FFFFFFF, payload, out)
            at = end
        self._unread = data[at:]
        if out:
            self._transport.write(b"".join(out))

    def _take(self, kind: int, flags: int, stream: int, payload: bytes, out: list[bytes]) -> None:
        if kind == DATA:
            self._window -= len(payload)
            if self._window < LEFT_WINDOW:
                out.append(frame(8, 0, 0, (WINDOW - self._window).to_bytes(4)))
                self._window = WINDOW
            self._read(stream, payload, out)
        elif kind in {SETTINGS, PING}:
            if not flags & ACK:
                out.append(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == RST_STREAM:
            self._forget(stream)
        if kind in {DATA, HEADERS} and flags & END_STREAM:
            block = CLOSING if stream in self._opened else OPENING + CLOSING
            out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
            self._forget(stream)

    def _read(self, stream: int, payload: bytes, out: list[bytes]) -> None:
        had = self._messages.pop(stream, b"") + payload
        answered = b""
        while len(had) >= 5 and len(had) >= (end := 5 + int.from_bytes(had[1:5])):
            answered += self._answer(stream, had[5:end])
            had = had[end:]
        if had:
            self._messages[stream] = had
        if answered:
            if stream not in self._opened:
                self._opened.add(stream)
                out.append(frame(HEADERS, END_HEADERS, stream, OPENING))
            out.append(frame(DATA, 0, stream, answered))

    def _answer(self, stream: int, message: bytes) -> bytes:
        kind = message[0]
        if kind == REQUEST_HEADERS and DUPLEX in message:
            self._duplex.add(stream)
            return self._headers
        if stream in self._duplex and kind in {REQUEST_BODY, RESPONSE_BODY}:
            return grpc_message(sent_back(message))
        return self._kept[kind]

    def _forget(self, stream: int) -> None:
        self._messages.pop(stream, None)
        self._opened.discard(stream)
        self._duplex.discard(stream)


async def serve(listen: str, server: str) -> None:
    """Answer until the process is stopped."""
    host, _, port = listen.rpartition(":")
    running = await asyncio.get_running_loop().create_server(partial(BareConnection, server), host, int(port))
    print(f"sending all to {server}", flush=True)
    await running.serve_forever()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    uvloop.run(serve(args.listen, args.server))


if __name__ == "__main__":
    main()
