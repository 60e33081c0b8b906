"""A gateway before a model that does little at once, whose doors can all be asked alike."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import ClientSession

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, PROMPTS, TEXTS
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_base.protocol import HeartbeatTiming
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_schema import Error, TgError, decode, encode

OFTEN = HeartbeatTiming(interval=0.05)
COMPLETION = "api/v1/text-completion"
SOCKET = "api/v1/socket"
DOORS = ("post", "sse", "socket")


def token_of(name: str) -> str:
    """The token of the key with that name."""
    return f"token-of-{name}"


def digest_of(name: str) -> str:
    """What the configuration says of it."""
    return hashlib.sha256(token_of(name).encode()).hexdigest()


@dataclass(frozen=True)
class Refused:
    """How a door said no: `after` is its Retry-After; on the socket the envelope's, and the status that of its type."""

    status: int
    kind: str
    after: float


@dataclass
class Narrow:
    """One gateway, and the ways to ask it."""

    gateway: Gateway
    requestor: Requestor
    llm: CountingLlm
    bus: MemoryBus
    http: ClientSession

    async def ask(
        self, door: str = "post", words: int = 1, *, key: str = "", service: str = "text-completion", **more: Any
    ) -> str | Refused:
        """The text of an answer, or how it was refused."""
        headers = {"Authorization": f"Bearer {token_of(key)}"} if key else {}
        asked = {"prompt": str(words)} if service == "text-completion" else {}
        body = {**asked, "streaming": door != "post", **more}
        if door == "socket":
            return await self._on_socket({"id": "a", "service": service, "request": body}, headers)
        async with self.http.post(f"api/v1/{service}", json=body, headers=headers) as response:
            if response.status != 200:
                return refused_of(response.status, await response.json(), response.headers.get("Retry-After"))
            if door == "post":
                return str((await response.json())["response"])
            lines = (await response.text()).split("\n\n")
            return "".join(json.loads(line.removeprefix("data: "))["response"] for line in lines if line)

    async def _on_socket(self, request: dict[str, Any], headers: dict[str, str]) -> str | Refused:
        async with self.http.ws_connect(SOCKET, headers=headers) as socket:
            await socket.send_json(request)
            text = ""
            while True:
                said = await socket.receive_json(timeout=5)
                if "error" in said:
                    assert said["complete"] is True
                    error = TgError.of(decode(Error, encode(said["error"])))
                    return Refused(error.status, error.type, error.retry_after or 0)
                text += str(said["response"]["response"])
                if said["complete"]:
                    return text

    async def until_in_flight(self, number: int) -> None:
        """Return once so many requests were announced as worked on."""
        queue, presence = TEXTS[0].request, self.requestor.presence
        await until(lambda: sum(serving.in_flight for serving in presence.serving(queue)) == number)

    async def until_asked(self, number: int) -> None:
        """Return once the model was asked so many times."""
        while len(self.llm.requests) < number:
            self.llm.started.clear()
            await self.llm.started.wait()


def refused_of(status: int, body: dict[str, Any], header: str | None) -> Refused:
    """A refusal whose header and body agree."""
    assert header is not None, body
    assert header.isdecimal()
    assert int(header) >= 1
    assert 0 < body["error"]["retry_after"] <= int(header)
    return Refused(status, body["error"]["type"], body["error"]["retry_after"])


@asynccontextmanager
async def narrow_gateway(
    *,
    capacity: int = 1,
    queue: int | None = 1,
    config: GatewayConfig = ON_ANY_PORT,
    limits: Limits | None = None,
    llm: CountingLlm | None = None,
) -> AsyncIterator[Narrow]:
    """Everything in one process, ready: the gateway knows who serves."""
    llm = llm or CountingLlm()
    llm.capacity = capacity
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, CONFIG.topics, llm, TEXTS, timing=OFTEN, grace=0.05),
        another_gateway(bus, llm, queue=queue, config=config, limits=limits) as narrow,
    ):
        yield narrow


@asynccontextmanager
async def another_gateway(
    bus: MemoryBus,
    llm: CountingLlm,
    *,
    queue: int | None = 1,
    config: GatewayConfig = ON_ANY_PORT,
    limits: Limits | None = None,
    served: bool = True,
) -> AsyncIterator[Narrow]:
    """A gateway on a bus that somebody serves."""
    texts = tuple(replace(route, queue=queue) for route in TEXTS)
    async with (
        Requestor(bus, CONFIG.topics, timing=OFTEN) as requestor,
        Gateway(config, requestor, texts + PROMPTS, limits=limits) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until(lambda: bool(requestor.presence.serving(TEXTS[0].request)) or not served)
        yield Narrow(gateway, requestor, llm, bus, http)
