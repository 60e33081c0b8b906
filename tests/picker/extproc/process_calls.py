"""Test -> picker, as Envoy calls it: the one method of the service."""

from typing import Any

import grpc

from tg_picker.extproc import wire
from tg_picker.extproc.picker_server import SERVICE

PROCESS = f"/{SERVICE}/Process"


def process_of(channel: grpc.aio.Channel) -> Any:
    """The method of the picker behind this channel: each call of it is one HTTP request."""
    return channel.stream_stream(PROCESS, wire.ProcessingRequest.SerializeToString, wire.ProcessingResponse.FromString)
