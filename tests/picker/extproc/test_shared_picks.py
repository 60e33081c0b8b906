"""Two pickers on a real Pulsar: what Envoy asks of one is told to the other, while gRPC and the bus share a process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from tests.fakes.model_server import ModelServer
from tests.picker.extproc.process_calls import process_of
from tests.picker.extproc.test_exchange import headers
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_picker.core.peers.delta import Batch, Snapshot, decode_delta
from tg_picker.extproc.picker_process import run_picker
from tg_schema.topics import Topics

FILE = """\
listen = "127.0.0.1:0"
endpoints = ["{}"]
[bus]
url = "pulsar://127.0.0.1:1"
namespace = "tg/flow"
"""


@pytest.mark.connected
async def test_what_one_picks_is_told_to_the_other(pulsar: PulsarServer, tmp_path: Path) -> None:
    file = tmp_path / "pick.toml"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ModelServer.running())
        file.write_text(FILE.format(server.address), "utf-8")
        bus = await stack.enter_async_context(open_bus(pulsar.service_url))
        heard = await stack.enter_async_context(bus.subscribe(Topics("tg/flow").placements, None))

        async def hear(kind: type[Batch | Snapshot]) -> Batch | Snapshot:
            while not (isinstance(delta := decode_delta((await anext(heard)).body), kind) and delta.placed):
                pass
            return delta

        said = await stack.enter_async_context(run_picker(file, bus=pulsar.service_url))
        address = said.split()[2]
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        first, second = (process_of(channel)() for _ in range(2))
        await first.write(headers(end=True))
        assert await first.read() is not grpc.aio.EOF
        async with asyncio.timeout(60):
            # The second one comes when the request is under way, so it has to ask for it.
            await stack.enter_async_context(run_picker(file, bus=pulsar.service_url))
            snapshot = await hear(Snapshot)
            await second.write(headers(end=True))
            batch = await hear(Batch)
        first.cancel()
        second.cancel()
    assert (len(snapshot.placed), len(batch.placed), batch.origin) == (1, 1, snapshot.origin)
