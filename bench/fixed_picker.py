"""Envoy -> one fixed address: what gRPC in Python takes of a picker's cost, since this one reads and decides nothing.

    python -m bench.fixed_picker --listen 127.0.0.1:9002 --server 127.0.0.1:8001   prints a line when it listens

The answers are made once, but for bodies in duplex mode.
"""

import argparse
import asyncio
from collections.abc import Iterable
from typing import Any

import grpc

from tg_picker.core import InstanceUsage
from tg_picker.extproc import messages, wire
from tg_picker.extproc.decision import Directed
from tg_picker.extproc.picker_server import MAX_MESSAGE_BYTES, SERVICE

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.so_reuseport", 1),
)
_DUPLEX = wire.ProcessingMode.FULL_DUPLEX_STREAMED


class Nobody:
    """A course that nobody follows."""

    def served(self, address: str) -> None:
        """See `Course`."""

    def respond(self, status: int, load: str) -> None:
        """See `Course`."""

    def begin(self) -> None:
        """See `Course`."""

    def end(self, usage: InstanceUsage | None) -> None:
        """See `Course`."""


class FixedPicker:
    """Answers each message at once.

    Args:
        server: the address that every request is sent to.
    """

    def __init__(self, server: str) -> None:
        directed = Directed((server,), Nobody())
        self._headers = messages.direct("request_headers", directed).SerializeToString()
        self._kept = {
            "request_headers": messages.NOTHING_FOR["request_headers"].SerializeToString(),
            "request_body": messages.direct("request_body", directed).SerializeToString(),
            "response_headers": messages.NOTHING_FOR["response_headers"].SerializeToString(),
            "response_body": messages.NOTHING_FOR["response_body"].SerializeToString(),
            "response_trailers": messages.NOTHING_FOR["response_trailers"].SerializeToString(),
        }

    async def process(self, _: Any, context: Any) -> None:
        """One HTTP request."""
        is_duplex = False
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.HasField("protocol_config"):
                is_duplex = message.protocol_config.request_body_mode == _DUPLEX
            kind = message.WhichOneof("request")
            for answer in self._in_duplex(kind, message) if is_duplex else (self._kept[kind],):
                await context.write(answer)

    def _in_duplex(self, kind: str, message: wire.ProcessingRequest) -> Iterable[bytes]:
        if kind == "request_headers":
            # Nothing of the body has to be known here, so that its pieces go back one by one.
            yield self._headers
        elif kind == "request_body":
            body = message.request_body
            for part in messages.pass_on_request(body.body, last=body.end_of_stream):
                yield part.SerializeToString()
        elif kind == "response_body":
            piece = message.response_body
            yield messages.pass_on("response_body", piece.body, last=piece.end_of_stream).SerializeToString()
        else:
            yield self._kept[kind]


async def serve(listen: str, server: str) -> None:
    """Answer until the process is stopped."""
    process: Any = grpc.stream_stream_rpc_method_handler(FixedPicker(server).process, wire.ProcessingRequest.FromString)
    running = grpc.aio.server(options=_OPTIONS)
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Process": process}),))
    running.add_insecure_port(listen)
    await running.start()
    print(f"sending all to {server}", flush=True)
    await running.wait_for_termination()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    asyncio.run(serve(args.listen, args.server))


if __name__ == "__main__":
    main()
