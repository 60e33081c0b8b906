"""A third party's module that never comes back from its import: a signal ends the process all the same."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.fakes.silent_server import SilentServer
from tests.flow.command import ended, started

MODULE = """
import socket

connection = socket.create_connection(("127.0.0.1", {port}))
connection.sendall(b"I am being imported")
connection.recv(1)
"""
TOOL = """
[models.m]
provider = "ollama"
[flows.f]
text-completion = { model = "m" }
prompt = {}
agent = { tools = ["hang"] }
[tools.hang]
kind = "python"
options = { function = "hanging:call" }
"""
PROVIDER = """
[models.m]
provider = "hanging:Model"
[flows.f]
text-completion = { model = "m" }
"""


@pytest.mark.parametrize("config", [TOOL, PROVIDER], ids=["tool", "provider"])
async def test_a_signal_ends_a_process_that_imports(tmp_path: Path, config: str) -> None:
    file = tmp_path / "tg.toml"
    file.write_text(config)
    async with SilentServer.running() as server:
        (tmp_path / "hanging.py").write_text(MODULE.format(port=server.url.rpartition(":")[2]))
        arguments = ("--config", str(file), "--port", "0")
        async with started("tg-serve", *arguments, PYTHONPATH=str(tmp_path)) as process:
            await asyncio.wait_for(server.asked.wait(), 60)
            process.send_signal(signal.SIGTERM)
            done = await ended(process, within=20)
    assert (done.code, done.out) == (0, "")
    assert "Traceback" not in done.err
