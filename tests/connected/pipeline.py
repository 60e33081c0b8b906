"""The pipeline as processes of their own, over a real broker and before a model that counts its calls."""

import asyncio
import re
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.flow.command import SCRIPTS, environment
from tests.suspended import suspended

READY = 60.0
TG_SERVE = SCRIPTS / "tg-serve"


@dataclass
class Part:
    """One `tg-serve`.

    Attributes:
        said: its log.
        url: of a gateway.
    """

    process: Process
    said: Path
    url: str = ""

    async def stopped(self, within: float) -> int:
        """Its exit status."""
        return await asyncio.wait_for(self.process.wait(), within)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.returncode is None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """It is stopped inside the block, as by a debugger, a snapshot of its machine or a frozen container."""
        with suspended(self.process.pid):
            yield


@dataclass
class Pipeline:
    """Starts parts, and ends them with the test.

    Args:
        provider: the model's base URL.
        bus: the broker's URL.
        folder: for configuration and logs.
        ready: seconds in which a part has to serve.
    """

    provider: str
    bus: str
    folder: Path
    flow: str = field(default_factory=lambda: f"f-{uuid.uuid4().hex[:8]}")
    parts: list[Part] = field(default_factory=list)
    ready: float = READY

    def __post_init__(self) -> None:
        self.file = self.configuration(self.flow)

    def configuration(self, *flows: str, capacity: int = 256, queue: int = 64) -> Path:
        """Write another file, for a part that is to serve these flows: `start(part, "--config", FILE)`.

        Args:
            flows: their names.
            capacity: requests that a processor works on side by side.
            queue: requests of a gateway that may wait.
        """
        file = self.folder / f"{uuid.uuid4().hex[:8]}.toml"
        file.write_text(
            f"""
            [gateway]
            drain = 2
            [models.live]
            provider = "openai"
            options = {{ base_url = "{self.provider}", key_variable = "", capacity = {capacity} }}
            queue = {queue}
            """
            + "".join(f'[flows.{flow}]\ntext-completion = {{ model = "live" }}\n' for flow in flows),
            "utf-8",
        )
        return file

    async def start(
        self, part: str, *options: str | Path, bus: str | None = None, program: Sequence[str | Path] = (TG_SERVE,)
    ) -> Part:
        """Return once it serves."""
        said = self.folder / f"{part}-{uuid.uuid4().hex[:8]}.log"
        with said.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *program,
                *("--config", str(self.file), "--bus", bus or self.bus, "--only", part, "--port", "0"),
                *("--log-format", "json", "--log-level", "warning", *options),
                stdout=PIPE,
                stderr=log,
                env=environment({}),
            )
        started = Part(process, said)
        self.parts.append(started)
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), self.ready)).decode()
        assert line.startswith("ready: "), f"{line}{said.read_text('utf-8')}"
        found = re.match(r"ready: (http://127\.0\.0\.1:\d+/) ", line)
        started.url = found[1] if found else ""
        return started

    async def close(self) -> None:
        """End all of them at once, and look through what they said: a defect of ours may not hide behind a death."""
        for part in self.parts:
            if part.alive:
                part.process.kill()
            await part.process.wait()
        for part in self.parts:
            said = part.said.read_text("utf-8", errors="replace")
            assert "Traceback" not in said, said[-4000:]
            assert "task.died" not in said, said[-4000:]


@asynccontextmanager
async def pipeline(provider: str, bus: str, folder: Path) -> AsyncIterator[Pipeline]:
    """No part runs yet."""
    opened = Pipeline(provider, bus, folder)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(opened.close)
        yield opened


def metric(page: str, name: str, labels: Mapping[str, str]) -> float:
    """One value of a page of metrics."""
    found = [line for line in page.splitlines() if line.startswith(name + "{")]
    wanted = [line for line in found if all(f'{label}="{value}"' in line for label, value in labels.items())]
    return sum(float(line.rsplit(" ", 1)[1]) for line in wanted)
