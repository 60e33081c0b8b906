"""Soak's subject: a real broker, two gateways, two processors, a prompt service and a provider, each its own process.

The second gateway and the second processor are there to be killed. The first ones, and the prompt service, live through
everything: what they hold at rest is what the soak looks at.
"""

import asyncio
import contextlib
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.pipeline import free_port
from bench.subject import tokengrid
from tests.pulsar_server import PulsarServer

REQUEST_TIMEOUT = 30.0
READY = 60.0
DRAIN = 20.0
NAMESPACE = "public/default"
DEFECT = re.compile(r"Traceback|\.defect|Segmentation|never awaited|never retrieved")
CONFIGURATION = """
[gateway]
request_timeout = {timeout}
drain = 5
[models.soak]
provider = "openai"
[models.soak.options]
base_url = "{provider}/v1"
key_variable = ""
tries = 2
clocks = {{ first_token = 6, idle = 4, total = 60 }}
[flows.default]
text-completion = {{ model = "soak" }}
prompt = {{}}
[prompts.templates.question]
prompt = "{{{{ question }}}}"
"""
# Nobody waits a minute for a topic to go that nobody uses.
BROKER = {
    "brokerDeleteInactiveTopicsFrequencySeconds": "5",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "5",
}


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Ask another process ten times a second, until it says so."""
    while not await true():  # noqa: ASYNC110 - another process sets no event of ours
        await asyncio.sleep(0.1)


@dataclass
class Outage:
    """A time in which a member was away: from the signal until it answered again."""

    began: float
    sudden: bool
    ended: float = float("inf")

    def meets(self, since: float, until: float) -> bool:
        """Whether it touches a span of time."""
        return self.began <= until and since <= self.ended


@dataclass
class Member:
    """One of our processes. `url` is where it shows its metrics; a gateway's is its door too."""

    name: str
    command: list[str]
    url: str
    log: Path
    door: bool
    process: Process | None = None
    outages: list[Outage] = field(default_factory=list)
    died: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of the process as it runs now."""
        assert self.process is not None
        return self.process.pid

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Return once it answers."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=log, stderr=log)
        async with asyncio.timeout(READY):
            await until(lambda: self._up(http))

    async def _up(self, http: aiohttp.ClientSession) -> bool:
        if self.process is not None and self.process.returncode is not None:
            raise RuntimeError(f"{self.name} ended while it started; its log is {self.log}")
        return await self.answers(http, "/health" if self.door else "/metrics")

    async def answers(self, http: aiohttp.ClientSession, path: str) -> bool:
        """Whether a page of it says 200."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            async with http.get(self.url + path, timeout=aiohttp.ClientTimeout(5)) as response:
                return response.status == 200
        return False

    async def end(self, number: int) -> int:
        """Signal it, wait for its end; its exit code."""
        assert self.process is not None
        if self.process.returncode is not None:
            return self.process.returncode
        self.process.send_signal(number)
        try:
            return await asyncio.wait_for(self.process.wait(), DRAIN)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            return -9999

    async def restart(self, http: aiohttp.ClientSession, number: int, pause: float) -> int:
        """End it by a signal, leave it away for a while, start it again; the exit code of the old one."""
        outage = Outage(time.monotonic(), sudden=number == signal.SIGKILL)
        self.outages.append(outage)
        code = await self.end(number)
        await asyncio.sleep(pause)
        await self.start(http)
        outage.ended = time.monotonic()
        return code

    async def tasks(self, http: aiohttp.ClientSession) -> int:
        """Tasks on its event loop."""
        async with http.get(self.url + "/metrics", timeout=aiohttp.ClientTimeout(10)) as response:
            text = await response.text()
        line = next(line for line in text.splitlines() if line.startswith("tg_tasks "))
        return int(float(line.split()[1]))

    @property
    def resident(self) -> float:
        """MiB of memory."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    @property
    def descriptors(self) -> int:
        """Open file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


class SoakPipeline:
    """Everything that runs.

    Attributes:
        server: the broker.
        members: our processes, by name.
        provider: its URL.
        http: for looking at things; no load goes through it.
    """

    def __init__(self, server: PulsarServer, members: dict[str, Member], provider: str) -> None:
        self.server = server
        self.members = members
        self.provider = provider
        self.http: aiohttp.ClientSession

    @property
    def survivors(self) -> list[Member]:
        """Who is never killed."""
        return [member for member in self.members.values() if not member.name.endswith("-2")]

    @property
    def gateways(self) -> list[Member]:
        """The doors."""
        return [member for member in self.members.values() if member.door]

    @property
    def dead(self) -> list[str]:
        """Survivors that did not survive."""
        return [
            member.name
            for member in self.survivors
            if member.process is not None and member.process.returncode is not None
        ]

    def defects(self) -> list[str]:
        """Exceptions that nobody expected, from the logs of all our processes."""
        found = []
        for member in self.members.values():
            lines = member.log.read_text("utf-8", "replace").splitlines()
            marked = [line for line in lines if DEFECT.search(line)]
            if marked:
                found.append(f"{len(marked)} unexpected exceptions in the log of {member.name}: {marked[0][:300]}")
        return found

    async def active(self) -> int:
        """Answers that the provider is writing now."""
        async with self.http.get(self.provider + "/stats") as response:
            stats: dict[str, Any] = await response.json()
        return int(stats["active"])

    async def provider_stats(self) -> dict[str, Any]:
        """What the provider has done."""
        async with self.http.get(self.provider + "/stats") as response:
            stats: dict[str, Any] = await response.json()
        return stats

    async def topics(self) -> dict[str, int]:
        """Our topics in the broker, with the number of their subscriptions."""
        found: dict[str, int] = {}
        for kind in ("persistent", "non-persistent"):
            for topic in await self._admin(f"{kind}/{NAMESPACE}"):
                name = topic.partition("://")[2]
                with contextlib.suppress(aiohttp.ClientResponseError):
                    found[topic] = len((await self._admin(f"{kind}/{name}/stats"))["subscriptions"])
        return found

    async def keep_dead_letters(self) -> None:
        """As docs/operations.md says: without retention the broker deletes topics that nobody subscribes to."""
        url = f"{self.server.admin_url}/admin/v2/namespaces/{NAMESPACE}/retention"
        policy = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 256}
        async with self.http.post(url, json=policy, raise_for_status=True):
            pass

    async def _admin(self, path: str) -> Any:
        url = f"{self.server.admin_url}/admin/v2/{path}"
        async with self.http.get(url, raise_for_status=True, timeout=aiohttp.ClientTimeout(30)) as response:
            return await response.json(content_type=None)

    async def ready(self, seconds: float) -> bool:
        """Whether every gateway comes to say that it can answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for gateway in self.gateways:
                    await until(lambda gateway=gateway: gateway.answers(self.http, "/ready"))  # type: ignore[misc]
                return True
        return False


def _members(folder: Path, config: Path, bus: str) -> dict[str, Member]:
    parts = {"gateway": "gateway", "processor": "text-completion", "prompt": "prompt"}
    members = {}
    for name in ("processor-1", "processor-2", "prompt", "gateway-1", "gateway-2"):
        part, port = parts[name.partition("-")[0]], free_port()
        command = tokengrid("--config", str(config), "--bus", bus, "--only", part, "--log-level", "warning")
        command += ["--port" if part == "gateway" else "--metrics-port", str(port)]
        url = f"http://127.0.0.1:{port}"
        members[name] = Member(name, command, url, folder / f"{name}.log", part == "gateway")
    return members


@asynccontextmanager
async def running_pipeline(folder: Path, seed: int, faults: float) -> AsyncIterator[SoakPipeline]:
    """All of it, ready; ended in good order."""
    server = PulsarServer(settings=BROKER)
    async with AsyncExitStack() as stack:
        stack.callback(server.close)
        await asyncio.to_thread(server.start)
        command = [sys.executable, "-m", "bench.soak_provider", f"--seed={seed}", f"--faults={faults}"]
        fake = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        stack.push_async_callback(fake.wait)
        stack.callback(fake.kill)
        assert fake.stdout is not None
        provider = f"http://127.0.0.1:{int(await fake.stdout.readline())}"
        config = folder / "soak.toml"
        config.write_text(CONFIGURATION.format(provider=provider, timeout=REQUEST_TIMEOUT), "utf-8")
        pipeline = SoakPipeline(server, _members(folder, config, server.service_url), provider)
        pipeline.http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        )
        await pipeline.keep_dead_letters()
        stack.push_async_callback(_ended, pipeline)
        for member in pipeline.members.values():
            await member.start(pipeline.http)
        if not await pipeline.ready(READY):
            raise RuntimeError(f"the pipeline does not get ready; see {folder}")
        yield pipeline


async def _ended(pipeline: SoakPipeline) -> None:
    """SIGTERM to all that still run; who ends badly is remembered in `died`."""
    running = [member for member in pipeline.members.values() if member.process and member.process.returncode is None]
    codes = await asyncio.gather(*(member.end(signal.SIGTERM) for member in running))
    for member, code in zip(running, codes, strict=True):
        if code:
            member.died.append(code)
