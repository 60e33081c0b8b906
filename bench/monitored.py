"""A real Prometheus over a real pipeline under load and faults: each panel shows data, each alert comes and goes.

    python -m bench.monitored                            needs Debian's package `prometheus`; about ten minutes
    python -m bench.monitored kill_broker empty_pool     some faults alone

The times of the rules and panels are divided by `SPEED`. Exit code 1: an expression of a dashboard never had a value,
or an alert did not fire on its fault, or still fired after it.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import re
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from bench.outage import Model
from bench.subject import tokengrid
from scripts.monitoring.__main__ import FOLDER
from scripts.monitoring.alert_rules import ALERTS
from scripts.monitoring.dashboards import DASHBOARDS
from tests.fakes.model_server_pages import Load, vllm_page
from tests.free_port import free_port
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_base.config import Config, TextCompletionConfig

SPEED = 20
PATIENCE_SECONDS = 120.0
LOAD_SECONDS = 0.25
"""Between two requests."""
TOKEN = "of-the-bench"
BROKER_BYTES = 256 * 1024
LONG_NAME = "x" * (BROKER_BYTES + 1)
"""No message on the broker is so large, nor is a record of usage that has it."""
CONFIGURATION = """
[gateway]
drain = 1
store = true
max_wait = 600
[[gateway.keys]]
name = "alice"
sha256 = "{sha256}"
admin = true
[models.chat]
provider = "openai"
queue = 8
options = {{ base_url = "{provider}/v1", key_variable = "", capacity = 4, tries = 1 }}
[models.pooled]
provider = "pool"
[models.pooled.options]
key_variable = ""
[[models.pooled.options.pools]]
name = "servers"
endpoints = ["{member}"]
models = ["pooled"]
adapters = ["tuned"]
objective = {{ first_token = 0.5, output_token = 0.2, share = 0.9 }}
[models.lost]
provider = "openai"
options = {{ base_url = "{provider}/v1", key_variable = "", upstream_model = "{long_name}" }}
[flows.default]
text-completion = {{ model = "chat" }}
[flows.pooled]
text-completion = {{ model = "pooled" }}
[flows.lost]
text-completion = {{ model = "lost" }}
"""


def quicken(text: str) -> str:
    """The same rule, or panel, with shorter times."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
        return f"{max(4, round(seconds / SPEED)) if seconds else 0}s"

    return re.sub(r"(?<=[\[ ])(\d+)([smh])\b", shorter, text)


@dataclass
class Part:
    """One process of ours."""

    command: list[str]
    log: Path
    process: Process | None = None

    async def start(self) -> None:
        """Begin it; it becomes ready in its time."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=log, stderr=log)

    async def kill(self) -> None:
        """At once."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Prometheus:
    """Asks it what it knows."""

    def __init__(self, url: str, http: ClientSession) -> None:
        self._url = url
        self._http = http

    async def query(self, expression: str) -> list[float]:
        """The values of an expression now."""
        data = {"query": expression}
        async with self._http.post(f"{self._url}/api/v1/query", data=data) as response:
            answer: dict[str, Any] = await response.json()
        assert answer["status"] == "success", answer
        return [value for each in answer["data"]["result"] if not math.isnan(value := float(each["value"][1]))]

    async def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        async with self._http.get(f"{self._url}/api/v1/alerts") as response:
            answer: dict[str, Any] = await response.json()
        return {each["labels"]["alertname"] for each in answer["data"]["alerts"] if each["state"] == "firing"}


class Watch:
    """What has been seen.

    Attributes:
        empty: expressions without a value so far.
        missed: what alerts have failed to do.
    """

    def __init__(self, prometheus: Prometheus) -> None:
        self.missed: list[str] = []
        self.empty = {
            re.sub(r"\$\w+", ".*", quicken(expression))
            for dashboard in DASHBOARDS
            for panel in dashboard.panels
            for expression, _ in panel.series
        }
        self._prometheus = prometheus
        self._tried: set[str] = set()

    async def look(self) -> None:
        """For ever: whether panels have values."""
        while True:
            for expression in sorted(self.empty):
                if await self._prometheus.query(expression):
                    self.empty.discard(expression)
            await asyncio.sleep(2)

    async def until(self, true: Callable[[set[str]], bool]) -> set[str]:
        """The alerts that fire, once it is true of them; or after a while."""
        late = time.monotonic() + PATIENCE_SECONDS
        while not true(firing := await self._prometheus.firing()) and time.monotonic() < late:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return firing

    @asynccontextmanager
    async def expecting(self, *names: str) -> AsyncIterator[None]:
        """The block makes a fault and waits with `fires`; after it the alerts must stop."""
        began = time.monotonic()
        await self.until(lambda firing: not firing & {*names})
        self._tried.update(names)
        yield
        still = await self.until(lambda firing: not firing & {*names}) & {*names}
        self.missed += [f"{name} fires after its fault" for name in sorted(still)]
        print(f"{', '.join(names)}: {time.monotonic() - began:.0f} s", flush=True)

    async def fires(self, *names: str) -> None:
        """Return once all do."""
        silent = {*names} - await self.until(lambda firing: {*names} <= firing)
        self.missed += [f"{name} does not fire on its fault" for name in sorted(silent)]

    @property
    def untried(self) -> set[str]:
        """Alerts whose fault was not made."""
        return {alert.name for alert in ALERTS} - self._tried


class Clients:
    """Who asks the gateway, for as long as the run lasts."""

    def __init__(self, url: str, http: ClientSession) -> None:
        self._url = url
        self._http = http
        self.pause = LOAD_SECONDS
        self.token = TOKEN
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, path: str, **body: Any) -> None:
        """One request, whatever comes of it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with contextlib.suppress(ClientError, TimeoutError, OSError):
            async with self._http.post(f"{self._url}{path}", json=body, headers=headers) as response:
                await response.read()

    async def run(self) -> None:
        """For ever."""
        messages = [{"role": "user", "content": "Say some words."}]
        turn = 0
        while True:
            turn += 1
            model = ("chat", "chat", "pooled", "tuned")[turn % 4]
            body = {"model": model, "stream": True, "messages": messages, "prompt_cache_key": f"k{turn % 3}"}
            self._begin(self.ask("/v1/chat/completions", **body))
            if turn % 20 == 0:
                flex = {"model": "chat", "input": "x", "background": True, "service_tier": "flex"}
                self._begin(self.ask("/v1/responses", **flex))
            await asyncio.sleep(self.pause)

    def _begin(self, asking: Any) -> None:
        task = asyncio.create_task(asking)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


class ModelServer:
    """A model server, which may go and come back at the same address."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.port = free_port()
        self._application = web.Application(client_max_size=2 * len(LONG_NAME))
        self._application.router.add_post("/v1/chat/completions", model.answer)
        self._application.router.add_get("/metrics", self._show)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen."""
        self._runner = web.AppRunner(self._application, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Connections are refused from now on."""
        await self._runner.cleanup()

    async def _show(self, _: web.Request) -> web.Response:
        return web.Response(body=vllm_page(Load()))


@dataclass
class World:
    """What a fault may touch."""

    watch: Watch
    clients: Clients
    model: ModelServer
    member: ModelServer
    parts: dict[str, Part]
    broker: PulsarServer

    @property
    def processors(self) -> list[Part]:
        """Those of the models."""
        return [part for name, part in self.parts.items() if name.startswith("chat")]


async def refuse(world: World, *alerts: str) -> None:
    """The provider and the pool's server answer 503."""
    world.model.model.dead = world.member.model.dead = True
    await world.watch.fires(*alerts)
    world.model.model.dead = world.member.model.dead = False


async def slow_down(world: World, *alerts: str) -> None:
    """The provider takes eight seconds."""
    world.model.model.pause = 8.0
    await world.watch.fires(*alerts)
    world.model.model.pause = 0.0


async def kill_one(world: World, *alerts: str) -> None:
    """A processor dies three times while it works."""
    world.model.model.pause = 3.0
    for _ in range(3):
        await asyncio.sleep(3)
        await world.processors[0].kill()
        await world.processors[0].start()
    await world.watch.fires(*alerts)
    world.model.model.pause = 0.0


async def kill_all(world: World, *alerts: str) -> None:
    """No processor lives."""
    for processor in world.processors:
        await processor.kill()
    await world.watch.fires(*alerts)
    for processor in world.processors:
        await processor.start()


async def publish_garbage(world: World, *alerts: str) -> None:
    """In a queue of requests."""
    bound = Config(flows={"default": {"text-completion": TextCompletionConfig(model="chat")}})
    (route,) = bound.routes("text-completion")
    async with open_bus(world.broker.service_url) as bus:
        await bus.publish(route.request, b"\xff no request", {})
    await world.watch.fires(*alerts)


async def lose_usage(world: World, *alerts: str) -> None:
    """The broker takes the record of a call by itself as little as a hundred thousand that wait."""
    await world.clients.ask("/v1/chat/completions", model="lost", messages=[{"role": "user", "content": "x"}])
    await world.watch.fires(*alerts)


async def kill_gateway(world: World, *alerts: str) -> None:
    """The second one."""
    await world.parts["gateway-2"].kill()
    await world.watch.fires(*alerts)
    await world.parts["gateway-2"].start()


async def guess_tokens(world: World, *alerts: str) -> None:
    """All clients do."""
    world.clients.token, world.clients.pause = "guessed", LOAD_SECONDS / 5
    await world.watch.fires(*alerts)
    world.clients.token, world.clients.pause = TOKEN, LOAD_SECONDS


async def slow_pool(world: World, *alerts: str) -> None:
    """The pool's server begins too late."""
    world.member.model.pause = 2.0
    await world.watch.fires(*alerts)
    world.member.model.pause = 0.0


async def empty_pool(world: World, *alerts: str) -> None:
    """The pool's server refuses connections."""
    await world.member.stop()
    await world.watch.fires(*alerts)
    await world.member.start()


async def kill_broker(world: World, *alerts: str) -> None:
    """It comes back later."""
    await asyncio.to_thread(world.broker.kill)
    await world.watch.fires(*alerts)
    await asyncio.to_thread(world.broker.start)


FAULTS: tuple[tuple[Callable[..., Awaitable[None]], tuple[str, ...]], ...] = (
    (refuse, ("TokengridErrorBudgetFastBurn", "TokengridErrorBudgetSlowBurn", "TokengridProviderRefuses")),
    (slow_down, ("TokengridQueueGrowing", "TokengridQueueFull")),
    (kill_one, ("TokengridProcessorsDying",)),
    (kill_all, ("TokengridNoProcessor",)),
    (publish_garbage, ("TokengridDeadLetters",)),
    (lose_usage, ("TokengridUsageLost",)),
    (kill_gateway, ("TokengridTargetDown",)),
    (guess_tokens, ("TokengridGuessedTokens",)),
    (slow_pool, ("TokengridObjectiveMissed",)),
    (empty_pool, ("TokengridPoolEmpty",)),
    (kill_broker, ("TokengridBrokerAway",)),
)


async def main(wanted: list[str]) -> int:
    """Run these faults, or all, and print what was missed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-monitored-")))
        broker = PulsarServer(settings={"maxMessageSize": str(BROKER_BYTES)})
        stack.callback(broker.close)
        await asyncio.to_thread(broker.start)
        servers = ModelServer(Model()), ModelServer(Model())
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        provider, member = (server.address for server in servers)
        sha256 = hashlib.sha256(TOKEN.encode()).hexdigest()
        config = folder / "tg.toml"
        settings = CONFIGURATION.format(
            provider=f"http://{provider}", member=member, sha256=sha256, long_name=LONG_NAME
        )
        config.write_text(settings, "utf-8")
        parts, targets = {}, {"tokengrid-gateway": [], "tokengrid": [], "pulsar": [broker.admin_url.split("//")[1]]}
        for name, part in {
            **dict.fromkeys(("gateway-1", "gateway-2"), "gateway"),
            **dict.fromkeys(("chat-1", "chat-2"), "text-completion"),
        }.items():
            port = free_port()
            command = tokengrid("--config", str(config), "--bus", broker.service_url, "--only", part)
            command += ["--port" if part == "gateway" else "--metrics-port", str(port), "--log-level", "warning"]
            targets["tokengrid-gateway" if part == "gateway" else "tokengrid"].append(f"127.0.0.1:{port}")
            parts[name] = Part(command, folder / f"{name}.log")
            await parts[name].start()
            stack.push_async_callback(parts[name].kill)
        http = await stack.enter_async_context(ClientSession(timeout=ClientTimeout(60)))
        prometheus = await start_prometheus(stack, folder, targets, http)
        watch, clients = Watch(prometheus), Clients(f"http://{targets['tokengrid-gateway'][0]}", http)
        working = [asyncio.create_task(clients.run()), asyncio.create_task(watch.look())]
        try:
            await asyncio.sleep(20)
            world = World(watch, clients, *servers, parts, broker)
            for fault, alerts in FAULTS:
                if fault.__name__ in wanted or not wanted:
                    async with watch.expecting(*alerts):
                        await fault(world, *alerts)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    for expression in sorted(watch.empty):
        print("no data:", expression)
    for sentence in (*watch.missed, *(f"{name} was not tried" for name in sorted(watch.untried))):
        print(sentence)
    return 1 if watch.empty or watch.missed or watch.untried else 0


async def start_prometheus(
    stack: AsyncExitStack, folder: Path, targets: dict[str, list[str]], http: ClientSession
) -> Prometheus:
    """Scrape them every second, by our rules."""
    (folder / "rules.yaml").write_text(quicken((FOLDER / "prometheus/rules.yaml").read_text("utf-8")), "utf-8")
    jobs = [
        {
            "job_name": job,
            "static_configs": [{"targets": addresses}],
            **({"authorization": {"credentials": TOKEN}} if job != "pulsar" else {}),
        }
        for job, addresses in targets.items()
    ]
    settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yaml").write_text(json.dumps(settings | {"scrape_configs": jobs}), "utf-8")
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *("prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"),
        *(f"--web.listen-address={address}", "--log.level=error"),
        stdout=DEVNULL,
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.send_signal, signal.SIGTERM)
    prometheus = Prometheus(f"http://{address}", http)
    while True:
        with contextlib.suppress(ClientError):
            if await prometheus.query("up"):
                return prometheus
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
