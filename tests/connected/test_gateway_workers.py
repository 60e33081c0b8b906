"""`--workers 2`: gateways on one port over a real broker, killed, restarted one by one under load, and orphaned."""

import asyncio
import itertools
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.connected.live_streams import LiveStream
from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.suspended import suspended
from tests.until import until
from tg_client import TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

PATIENCE = 60.0
CLIENTS = 6


def events(gateway: Part, name: str) -> list[dict[str, Any]]:
    """Its lines of one kind, of all its processes."""
    lines = gateway.said.read_text("utf-8").rpartition("\n")[0].splitlines()
    # Under load it has a thousand lines, and is looked at two hundred times a second.
    return [event for line in lines if name in line and (event := json.loads(line))["event"] == name]


def state(pid: int) -> str:
    """Of a process, as the system names it; "" = it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0].replace("Z", "")
    return ""


async def start(line: Pipeline) -> tuple[Part, list[int]]:
    """A gateway of two workers before one processor, and the workers' ids."""
    # Streams that run have time to be let finish.
    line.file.write_text(line.file.read_text("utf-8").replace("drain = 2", "drain = 60"), "utf-8")
    gateway, _ = await asyncio.gather(
        line.start("gateway", "--workers", "2", "--log-level", "info"), line.start("text-completion")
    )
    (serving,) = events(gateway, "workers.serving")
    await until_ready(gateway.url)
    return gateway, serving["pids"]


async def until_ready(url: str) -> None:
    async with aiohttp.ClientSession(url) as http, asyncio.timeout(PATIENCE):
        while True:
            async with http.get("ready", headers={"Connection": "close"}) as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)


async def ask_again_and_again(gateway: Part, flow: str, over: asyncio.Event, *, keeps: bool) -> int:
    """A client that asks as soon as it is answered, on one connection or on a new one each time; how often."""
    url = f"{gateway.url}api/v1/flow/{flow}/service/text-completion"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=not keeps)) as http:
        for number in itertools.count(1):
            async with http.post(url, json={"system": "", "prompt": "p", "streaming": True}) as response:
                assert response.status == 200, await response.text()
                text = "".join(re.findall(r"<[^>]*>", await response.text()))
            told(text, whole=True)
            if over.is_set():
                return number
    raise AssertionError


async def restart_under_load(gateway: Part, flow: str, live_model: LiveOpenAi) -> list[int]:
    """Every request of every client is answered whole; the ids of the new workers."""
    over = asyncio.Event()
    async with asyncio.timeout(3 * PATIENCE), asyncio.TaskGroup() as load:
        clients = [
            load.create_task(ask_again_and_again(gateway, flow, over, keeps=bool(number % 2)))
            for number in range(CLIENTS)
        ]
        # All of them have a stream that runs when the restart begins, and go on asking until it has ended.
        await live_model.until(lambda: len(live_model.running) == CLIENTS, PATIENCE)
        gateway.process.send_signal(signal.SIGHUP)
        live_model.finish.set()
        await until(lambda: len(events(gateway, "worker.restarted")) == 2, 2 * PATIENCE)
        over.set()
    assert min(client.result() for client in clients) > 1
    return [event["pid"] for event in events(gateway, "worker.restarted")]


async def kill_one(gateway: Part, flow: str, live_model: LiveOpenAi, pids: list[int]) -> None:
    """Its stream breaks; the other's goes on, and whoever comes is answered."""
    live_model.finish.clear()
    streams = [LiveStream(f"p{number}") for number in range(2)]
    async with (
        TgClient(gateway.url, retries=0) as one,
        TgClient(gateway.url, retries=0) as other,
        asyncio.TaskGroup() as reading,
    ):
        for stream, client, elsewhere in zip(streams, (one, other), reversed(pids), strict=True):
            with suspended(elsewhere):
                reading.create_task(stream.read(client.flow(flow), PATIENCE))
                await asyncio.wait_for(stream.began.wait(), PATIENCE)
        os.kill(pids[0], signal.SIGKILL)
        await asyncio.wait_for(streams[0].over.wait(), PATIENCE)
        live_model.finish.set()
        for number in range(10):
            async with TgClient(gateway.url, retries=0) as client:
                told((await client.flow(flow).text_completion("", f"n{number}")).text, whole=True)
    assert [stream.whole for stream in streams] == [False, True], [stream.error for stream in streams]
    assert streams[0].error is not None
    await until(lambda: events(gateway, "worker.replaced"), PATIENCE)


async def test_workers_are_restarted_replaced_and_never_orphaned(line: Pipeline, live_model: LiveOpenAi) -> None:
    """One pipeline for all of it: its processes take longer to start than what is tested."""
    gateway, first = await start(line)
    second = await restart_under_load(gateway, line.flow, live_model)
    assert not any(map(state, first))
    await kill_one(gateway, line.flow, live_model, second)
    (replaced,) = events(gateway, "worker.replaced")
    assert replaced["worker"] == 0
    assert {line["worker"] for line in events(gateway, "gateway.request")} == {0, 1}
    gateway.process.kill()
    await until(lambda: not any(map(state, (second[1], replaced["pid"]))), PATIENCE)
