"""A process that cannot hear: its subscription ends, or it may open too few files; readiness tells until it can."""

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientSession

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.ending_bus import EndingBus
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.typed_clients import LlmClient
from tests.flow.command import SCRIPTS, ran
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, QUICK, TEXTS
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_gateway.app import Gateway
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BusError, Unavailable
from tg_schema.topics import Topics

ROOT = Path(__file__).parents[2]
DEAF = {"ready": False, "missing": ["a subscription has ended and is being opened again"]}
NOBODY = {
    "ready": False,
    "missing": [f"no live processor serves text-completion of flow default (model {TEXTS[0].model})"],
}


@pytest.mark.parametrize("error", [None, BusError("the broker refused (UnknownError); try again")])
@pytest.mark.parametrize("kind", ["request", "inbox", "control", "announce", "presence"])
async def test_an_end_of_a_reader_leaves_nobody_deaf(kind: str, error: BusError | None) -> None:
    bus, topics, flow = EndingBus(MemoryBus()), Topics(), uuid4().hex
    route = Route(flow, TEXT_COMPLETION, topics.request(flow, "t"), topics.response(flow, "t"))
    async with (
        Processor(bus, topics, CountingLlm(), (route,), timing=QUICK) as processor,
        Requestor(bus, topics, timing=QUICK) as requestor,
    ):
        topic = {
            "request": route.request,
            "inbox": requestor._inbox.topic,
            "control": topics.control(processor.name),
            "announce": topics.announce,
            "presence": topics.presence,
        }[kind]
        client = LlmClient(requestor, route)
        for _ in range(3):
            assert await answered(client) == "0 1 2 "
            opened = bus.opened.count(topic)
            bus.end(topic, error)
            async with asyncio.timeout(20):
                while bus.opened.count(topic) == opened:  # noqa: ASYNC110 - nothing tells when
                    await asyncio.sleep(0.005)
        assert await answered(client) == "0 1 2 "


async def answered(client: LlmClient) -> str:
    """What the lone processor answers: while one of its readers is being opened again, it takes no requests."""
    async with asyncio.timeout(20):
        while True:
            with suppress(Unavailable):
                return await client.request("", "3", timeout=20)


async def ready(http: ClientSession, expected: object) -> None:
    """Return once `/ready` says this."""
    async with asyncio.timeout(20):
        while True:
            async with http.get("/ready") as response:
                if (await response.json(), response.status) == (expected, 503 if expected in (DEAF, NOBODY) else 200):
                    return


@pytest.mark.parametrize("kind", ["inbox", "presence"])
async def test_a_gateway_that_hears_nothing_is_not_ready_until_it_does(kind: str) -> None:
    inner = MemoryBus()
    bus = EndingBus(inner)
    async with (
        Requestor(bus, CONFIG.topics, timing=QUICK) as requestor,
        Processor(inner, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK),
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await ready(http, {"ready": True, "missing": []})
        bus.refusing = True
        bus.end(requestor._inbox.topic if kind == "inbox" else CONFIG.topics.presence)
        await ready(http, DEAF)
        bus.refusing = False
        await ready(http, {"ready": True, "missing": []})


@pytest.mark.parametrize("kind", ["request", "control"])
async def test_a_processor_that_hears_nothing_serves_nobody_until_it_does(kind: str) -> None:
    inner = MemoryBus()
    bus = EndingBus(inner)
    async with (
        Requestor(inner, CONFIG.topics, timing=QUICK) as requestor,
        Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK) as processor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await ready(http, {"ready": True, "missing": []})
        bus.refusing = True
        bus.end(TEXTS[0].request if kind == "request" else CONFIG.topics.control(processor.name))
        await ready(http, NOBODY)
        bus.refusing = False
        await ready(http, {"ready": True, "missing": []})


PROGRAM = """
import sys
from contextlib import asynccontextmanager
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.ending_bus import EndingBus
from tests.flow.open_gateway import CONFIG, TEXTS
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import HeartbeatTiming
from tg_base.server import serve_process
from tg_base.server import Processor
from tg_base.client import Requestor
from tg_schema import TgError

SOON = HeartbeatTiming(0.2, give_up=0.5)
bus_end = {"inbox": lambda it: it._inbox.topic, "request": lambda it: TEXTS[0].request}

@asynccontextmanager
async def serving():
    bus = EndingBus(MemoryBus())
    part = {"inbox": lambda: Requestor(bus, CONFIG.topics, timing=SOON),
            "request": lambda: Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, timing=SOON)}[sys.argv[1]]
    async with part() as entered:
        bus.refusing = True
        yield lambda: bus.end(bus_end[sys.argv[1]](entered))

try:
    serve_process(serving(), lambda end: end())
except TgError as error:
    sys.exit(error.message)
"""


@pytest.mark.parametrize("kind", ["inbox", "request"])
async def test_without_hope_the_process_ends_with_a_sentence(kind: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, kind, env=environment, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"the bus answers, but has refused the subscription to" in said
    assert b"Traceback" not in said


PICK = """
[[pools]]
servers = ["127.0.0.1:1"]
"""
COMMANDS = [("tg-serve", "--port", "0"), ("tg-serve-model", "--port", "0"), ("tg-pick", "--config", "pick.toml")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
async def test_a_process_that_may_open_too_few_files_says_how_many_it_needs(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "pick.toml"
    config.write_text(PICK, "utf-8")
    name, *words = (str(config) if word == config.name else word for word in command)
    done = await ran("bash", "-c", f'ulimit -n 12; exec "{SCRIPTS}/{name}" "$@"', name, *words)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"{name}: this process may have 12 files open, and needs 64, besides one for each connection: "
        "raise the limit before you start it, as with ulimit -n 1024\n"
    )


LIMITED = Topics()
ROUTE = Route("f", TEXT_COMPLETION, LIMITED.request("f", "t"), LIMITED.response("f", "t"))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_processor_without_descriptors_says_so_and_takes_no_request(openai_server: OpenAiServer) -> None:
    options = OpenAiOptions(base_url=openai_server.url, key_variable="", tries=1, upstream_model=openai_server.model)
    async with (
        aclosing(MemoryBus()) as bus,
        Requestor(bus, LIMITED, timing=QUICK) as requestor,
        Processor(bus, LIMITED, await OpenAiCompatible.open("ours", options), (ROUTE,), timing=QUICK),
    ):
        client = LlmClient(requestor, ROUTE)
        await until(lambda: requestor.presence.serving(ROUTE.request))
        with no_descriptors():
            with pytest.raises(Unavailable, match=r"EMFILE.*ulimit -n"):
                await client.request("", "hello")
            await until(lambda: not requestor.presence.serving(ROUTE.request))
        await until(lambda: requestor.presence.serving(ROUTE.request))
        assert await client.request("", "hello")
