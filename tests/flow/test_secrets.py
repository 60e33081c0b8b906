"""Canaries in providers' errors, keys and clients' tokens: no log, error, metric or topic has one.

Every secret here begins with `canary`, and nothing else does.
"""

import asyncio
import hashlib
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.fakes.indiscreet_openai import MODEL, MODES, IndiscreetOpenAi
from tests.fakes.recording_bus import RecordingBus
from tests.flow.command import ended, out_of, started
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import ApiKey, Config, GatewayConfig, TextCompletionConfig
from tg_base.server import Processor
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_gateway.app import Gateway

KEY = "canary-provider-key"
TOKEN = "canary-client-token"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
STRANGERS = (
    {"Authorization": "Bearer canary-wrong"},
    {"Authorization": "Basic canary-basic"},
    {"Cookie": "token=canary-cookie"},
    {"X-Api-Key": "canary-header"},
    {"Authorization": f"Bearer {TOKEN} canary-behind"},
)
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
COMPLETION, SOCKET = "api/v1/text-completion", "api/v1/socket"


@pytest.fixture
async def provider() -> AsyncIterator[IndiscreetOpenAi]:
    async with IndiscreetOpenAi.listening() as provider:
        yield provider


async def everything(url: str) -> list[str]:
    """Ask in every way; all that clients were told."""
    async with ClientSession(url) as http:
        right = [posted(http, mode, streaming, RIGHT) for mode in MODES for streaming in (True, False)]
        wrong = [posted(http, "well", True, headers, "?token=canary-query") for headers in STRANGERS]
        told = [text for texts in await asyncio.gather(*right, *wrong, on_a_socket(http)) for text in texts]
        async with http.get("metrics", headers=RIGHT) as response:
            told.append(await response.text())
            assert "tg_streams_total" in told[-1]
    return told


async def posted(
    http: ClientSession, mode: str, streaming: bool, headers: Mapping[str, str], query: str = ""
) -> list[str]:
    """What one request is told, head and body."""
    body = {"prompt": mode, "streaming": streaming}
    async with http.post(COMPLETION + query, json=body, headers=headers) as response:
        told = [await response.text(), *response.headers.values(), str(response.reason)]
    failed = mode != "well" or headers is not RIGHT
    assert ('"error"' in told[0]) == failed, (mode, told[0])
    return told


async def on_a_socket(http: ClientSession) -> list[str]:
    """The same on a WebSocket, with a wrong token before the right one."""
    told = []
    async with http.ws_connect(f"{SOCKET}?token=canary-query") as socket:
        for token in ("canary-wrong", TOKEN):
            await socket.send_json({"type": "auth", "token": token})
            told.append(await socket.receive_str(timeout=5))
        assert "auth-ok" in told[-1]
        for mode in MODES:
            asked = {"prompt": mode, "streaming": True}
            await socket.send_json({"id": mode, "service": "text-completion", "request": asked})
        while sum('"complete":true' in frame for frame in told) < len(MODES):
            told.append(await socket.receive_str(timeout=20))
    assert sum('"error":{' in frame for frame in told) == len(MODES) - 1
    return told


def canaries(texts: list[str]) -> Iterator[str]:
    """Each canary with what stands around it."""
    for text in texts:
        yield from re.findall(r".{0,80}canary.{0,40}", text, re.IGNORECASE)
        if DIGEST in text:
            yield "the digest of the token"


async def test_a_process_tells_no_secret(provider: IndiscreetOpenAi, tmp_path: Path) -> None:
    """Its log at the finest level, its answers and its metrics."""
    file = tmp_path / "tokengrid.toml"
    file.write_text(
        f"""
        [gateway]
        auth = "on"
        keys = [{{ name = "tester", sha256 = "{DIGEST}", admin = true }}]
        [models.{MODEL}]
        provider = "openai"
        options = {{ base_url = "{provider.url}", key_variable = "SECRET_KEY", tries = 2, clocks = {{ idle = 5 }} }}
        [flows.default]
        text-completion = {{ model = "{MODEL}" }}
        """,
        "utf-8",
    )
    arguments = ("--config", str(file), "--port", "0", "--log-level", "debug", "--log-format", "json")
    async with started("tg-serve", *arguments, SECRET_KEY=KEY, PYTHONASYNCIODEBUG="1") as process:
        line = (await asyncio.wait_for(out_of(process).readline(), 60)).decode()
        url = line.split()[1]
        told = await everything(url)
        process.send_signal(signal.SIGTERM)
        done = await ended(process)
    assert set(provider.asked) == set(MODES)
    assert '"key":"tester"' in done.err
    assert list(canaries([*told, line, done.out, done.err])) == []


@asynccontextmanager
async def pipeline(url: str, bus: RecordingBus) -> AsyncIterator[Gateway]:
    """A gateway and the provider on one bus."""
    config = Config(
        gateway=GatewayConfig(port=0, auth="on", keys=(ApiKey(name="tester", sha256=DIGEST, admin=True),), drain=0.05),
        flows={"default": {"text-completion": TextCompletionConfig(model=MODEL)}},
    )
    routes = config.routes("text-completion")
    llm = await OpenAiCompatible.open(MODEL, OpenAiOptions(base_url=url, key_variable="SECRET_KEY", tries=1))
    async with (
        Processor(bus, config.topics, llm, routes, models=(MODEL,), grace=0.05),
        Requestor(bus, config.topics) as requestor,
        Gateway(config.gateway, requestor, routes) as gateway,
    ):
        yield gateway


async def test_no_topic_has_a_secret(provider: IndiscreetOpenAi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", KEY)
    bus = RecordingBus(MemoryBus())
    async with pipeline(provider.url, bus) as gateway:
        await everything(gateway.url)
        for body in (b"\xff canary-less", b"{"):
            await bus.publish("persistent://public/default/tg-request-default-text-completion", body, {"id": "bad"})
    await bus.aclose()
    published = [f"{topic} {body!r} {properties}" for topic, body, properties in bus.published]
    assert any("tg-inbox" in line for line in published)
    assert list(canaries([line for line in published if "canary-less" not in line])) == []


def test_the_scan_finds_what_is_there() -> None:
    assert list(canaries(["x Canary-y", DIGEST, "nothing"])) == ["x Canary-y", "the digest of the token"]
