"""A real OpenTelemetry collector as a process: built once from tests/collector by Go, then kept in the cache.

The build takes a minute or more, so it is made only where TOKENGRID_COLLECTOR=build asks for it.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.otlp_collector import Received
from tests.free_port import free_port

SOURCES = Path(__file__).with_name("collector")
VARIABLE = "TOKENGRID_COLLECTOR"
FAILED = 2
"""The status code of a span that failed."""


def find_collector() -> Path:
    """The program; without it the test is skipped."""
    cache = Path(os.environ.get("TOKENGRID_CACHE") or Path.home() / ".cache" / "tokengrid")
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    program = cache / f"collector-{digest.hexdigest()[:16]}"
    if not program.exists():
        go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
        if os.environ.get(VARIABLE) != "build" or go is None:
            pytest.skip(f"there is no collector: with Go installed, {VARIABLE}=build builds it in a minute or more")
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-o", program, "."], cwd=SOURCES, check=True)
    return program


@dataclass
class RealCollector:
    """What it has got.

    Attributes:
        url: its base URL.
        spans: in the order of their arrival.
    """

    url: str
    process: Process
    spans: list[Received] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, certificate: Path | None = None) -> AsyncIterator["RealCollector"]:
        """Listen while the block runs, by TLS if there is a certificate with its key."""
        address = f"127.0.0.1:{free_port()}"
        tls = {"tls": {"cert_file": str(certificate), "key_file": str(certificate)}} if certificate else {}
        settings = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": address, **tls}}}},
            "exporters": {"lines": None},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["lines"]}},
            },
        }
        file = folder / "collector.yaml"
        file.write_text(json.dumps(settings), "utf-8")
        program = await asyncio.to_thread(find_collector)
        process = await asyncio.create_subprocess_exec(
            program, "--config", str(file), stdout=PIPE, stderr=PIPE, limit=2**26
        )
        collector = cls(f"{'https' if certificate else 'http'}://{address}", process)
        assert process.stderr is not None
        while b"Everything is ready" not in (line := await process.stderr.readline()):
            assert line, "the collector has ended"
        reading = [asyncio.create_task(collector._read()), asyncio.create_task(_drop(process.stderr))]
        try:
            yield collector
        finally:
            process.kill()
            await asyncio.gather(process.wait(), *reading)

    def named(self, name: str) -> list[Received]:
        """The spans of that name, from the one that began first."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.begin)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.endswith(b"\n"):
                # It was killed while it wrote.
                return
            for group in json.loads(line)["resourceSpans"]:
                self.spans += [_read_span(span) for scope in group["scopeSpans"] for span in scope["spans"]]


async def _drop(stream: asyncio.StreamReader) -> None:
    async for _ in stream:
        pass


def _read_span(span: dict[str, Any]) -> Received:
    return Received(
        span["name"],
        ("", "internal", "server", "client")[span["kind"]],
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
        span.get("status", {}).get("code") == FAILED,
        {each["key"]: _read_value(each["value"]) for each in span.get("attributes", ())},
    )


def _read_value(value: dict[str, Any]) -> Any:
    ((kind, held),) = value.items()
    if kind == "arrayValue":
        return [_read_value(each) for each in held["values"]]
    return int(held) if kind == "intValue" else held
