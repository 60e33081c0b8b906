"""A gateway with the pool provider beside one with a plain OpenAI provider, before the same model servers.

Each is one `tg-serve` on the memory bus; the pool has three servers, the plain provider the first of them.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.asking_client import ask
from bench.pipeline import CONFIGURATION, ENVIRONMENT, Load, Row, load, started
from bench.subject import Subject, tokengrid, wait_ready

SERVER, PLAIN, POOL = "model server alone", "plain provider", "pool provider"
POOL_CONFIGURATION = """
[models.bench]
provider = "pool"
queue = 10000
options = {{ endpoints = [{provider}] }}

[flows.default]
text-completion = {{ model = "bench" }}
"""
STREAMS = Load("8 streams", 8, 64, 10)
"""Whose chunks are measured one by one."""

Measure = Callable[[float], Row]
"""One turn of this length."""
Chats = Callable[[int], list[bytes]]
"""The requests for a port, one for each client."""


def ways_through_gateways(servers: Sequence[int], chats: Chats, folder: Path, stack: ExitStack) -> dict[str, Measure]:
    """What is to be measured, by its name; the servers' turn comes first, since `added` is to be counted from it."""
    floor = _Floor(partial(chats, servers[0]), servers[0])
    addresses = ", ".join(f'"127.0.0.1:{port}"' for port in servers)
    configurations = {PLAIN: (f"http://127.0.0.1:{servers[0]}", CONFIGURATION), POOL: (addresses, POOL_CONFIGURATION)}
    ways: dict[str, Measure] = {SERVER: floor.measure}
    for name, (told, configuration) in configurations.items():
        home = folder / name.partition(" ")[0]
        home.mkdir()
        url, common = started(home, told, "memory://", configuration)
        gateway = stack.enter_context(Subject(name, tokengrid(*common), home / "serve.log", ENVIRONMENT))
        wait_ready(url)
        ways[name] = partial(_through_gateway, gateway, url, chats, floor)
    return ways


class _Floor:
    """The model server without a gateway, and its last `p50`."""

    def __init__(self, chats: Callable[[], list[bytes]], port: int) -> None:
        self._chats = chats
        self._port = port
        self.p50 = 0.0

    def measure(self, seconds: float) -> Row:
        row = uvloop.run(ask(self._port, self._chats(), seconds))
        self.p50 = row["p50"]
        return row


def _through_gateway(gateway: Subject, url: str, chats: Chats, floor: _Floor, seconds: float) -> Row:
    port = urlsplit(url).port or 0
    before = gateway.cpu
    row = uvloop.run(ask(port, chats(port), seconds))
    row["cpu_ours"] = 1000 * (gateway.cpu - before) / row["requests"]
    streamed = load(url, "openai", STREAMS, [gateway])
    if streamed["missing"] or streamed["errors"]:
        raise RuntimeError(f"{streamed['missing']} chunks never came, streams failed: {streamed['errors']}")
    return row | {"added": row["p50"] - floor.p50, "chunk": streamed["added_p50"]}
