"""Each process of ours, with its own beginning: what holds its event loop ends it, and one line says where."""

import json
import sys
from pathlib import Path

import pytest

from tests.flow.command import ran
from tests.flow.test_pick_command import write

ROOT = Path(__file__).parents[2]
HEAD = """
import asyncio, sys, threading
from contextlib import asynccontextmanager
from tg_base.server import held_loop, serve_process
from tg_base.telemetry import configure_log

held_loop.HELD_SECONDS = 0.2


def hold(*_):
    while True:
        len("spinning")


def hold_soon(line):
    asyncio.get_running_loop().call_soon(hold)


"""
GATEWAY = """
from http.client import HTTPConnection
from tests.flow.open_gateway import CONFIG, TEXTS
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_doors import LmiConfig
from tg_gateway.app import Gateway

configure_log("json", "error")


def read_body(body, headers):
    hold()


@asynccontextmanager
async def gateway():
    config = GatewayConfig(port=0, doors={"lmi": LmiConfig(input_formatter="__main__:read_body")})
    async with Requestor(MemoryBus(), CONFIG.topics) as requestor, Gateway(config, requestor, TEXTS) as opened:
        yield opened.url


def ask(url):
    connection = HTTPConnection(url.removeprefix("http://").strip("/"))
    asking = lambda: connection.request("POST", "/invocations", b"{}", {"X-Request-Id": "the-request"})
    threading.Thread(target=asking, daemon=True).start()


serve_process(gateway(), ask)
"""
PICKER = """
from pathlib import Path
from tg_serve.options import PickOptions
from tg_serve.pick_process import pick

pick(PickOptions(Path(sys.argv[1]), log_form="json", log_level="error"), hold_soon)
"""
EMBEDDED = """
from tg_serve.embedded import embedded_gateway


async def command():
    async with embedded_gateway():
        hold_soon("")
        await asyncio.Event().wait()


asyncio.run(command())
"""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param(GATEWAY, '"the-request"', id="gateway"),
        pytest.param(PICKER, "", id="tg-pick"),
        pytest.param(EMBEDDED, "", id="embedded", marks=pytest.mark.model),
    ],
)
async def test_it_ends_and_says_what_held_it(tmp_path: Path, program: str, says: str) -> None:
    arguments = ("-c", HEAD + program, str(write(tmp_path)))
    done = await ran(sys.executable, *arguments, PYTHONWARNINGS="default", PYTHONPATH=str(ROOT))
    line = json.loads(done.err.splitlines()[-1])
    assert (done.code, done.out, line["event"]) == (1, "", "loop.held")
    assert says in done.err
    assert any("<string>:" in place for place in line["at"])
