"""What the broker's client says goes through our log: levels, one form, no secret, a bound, nothing past it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tg_base.bus.pulsar.client_log import MAX_FILE_BYTES, MAX_LINE_CHARACTERS, MAX_LINES, MAX_READ_BYTES, ClientLog

AT = "2026-11-21 22:41:23.260"
CANARY = "canary-0123456789"
PROGRAM = """
import asyncio, os
from tg_base.bus import open_bus
from tg_base.bus.pulsar.client_log import client_log
from tg_base.telemetry import configure_log
from tg_schema.errors import BusError

async def main():
    async with open_bus("pulsar://127.0.0.1:1") as bus:
        try:
            await bus.publish("persistent://public/default/a", b"x", {"id": "1"})
        except BusError:
            pass

configure_log("json", "warning")
asyncio.run(main())
with open(client_log().path, "a") as file:
    file.write("2026-11-21 22:41:23.260 ERROR [1] Auth:1 | refused token=" + os.environ["MY_TOKEN"] + "\\n")
"""


@pytest.fixture
def written() -> Iterator[tuple[ClientLog, int]]:
    """A log of its own, and where a client would write into it."""
    file = ClientLog()
    descriptor = os.open(file.path, os.O_WRONLY | os.O_APPEND)
    yield file, descriptor
    os.close(descriptor)


def passed_on(written: tuple[ClientLog, int], text: str) -> list[EventDict]:
    with capture_logs() as lines:
        os.write(written[1], text.encode())
        written[0].read()
    return lines


def test_a_process_without_its_broker_writes_nothing_past_the_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        env={"MY_TOKEN": CANARY, "PYTHONWARNINGS": "error"},
        timeout=90,
    )
    assert done.stdout == ""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    said = [line for line in lines if line["event"] == "bus.client"]
    assert any("Connection refused" in line["text"] for line in said)
    assert {line["level"] for line in said} == {"error"}
    assert all("request" not in line for line in lines)
    assert (said[-1]["where"], said[-1]["text"]) == ("Auth:1", "refused (hidden)")
    assert CANARY not in done.stderr


def test_levels_and_places(written: tuple[ClientLog, int]) -> None:
    text = "".join(f"{AT} {level:<5} [140] Some.Class:7 | it | said\n" for level in ("DEBUG", "INFO", "WARN", "ERROR"))
    lines = passed_on(written, text + "and went on\n\n")
    assert [line["log_level"] for line in lines] == ["debug", "info", "warning", "error", "error"]
    assert {line["where"] for line in lines[:4]} == {"Some.Class:7"}
    assert [line["text"] for line in lines] == ["it | said"] * 4 + ["and went on"]


def test_a_line_that_is_not_whole_waits_for_its_end(written: tuple[ClientLog, int]) -> None:
    assert passed_on(written, f"{AT} ERROR [1] A:1 | hel") == []
    assert [line["text"] for line in passed_on(written, "lo\n")] == ["hello"]


def test_a_flood_is_bounded_and_counted(written: tuple[ClientLog, int]) -> None:
    flood = f"{AT} ERROR [1] A:1 | {'x' * 2000}\n"
    lines = passed_on(written, flood * 20)
    assert len(lines) == MAX_LINES + 1
    assert len(lines[0]["text"]) == MAX_LINE_CHARACTERS
    assert (lines[-1]["event"], lines[-1]["lines"]) == ("bus.client_lines_dropped", 20 - MAX_LINES)
    count = MAX_FILE_BYTES // len(flood) + 10
    lines = passed_on(written, flood * count)
    assert len(lines) == MAX_LINES + 2
    assert 0 <= lines[0]["size"] - (len(flood) * count - MAX_READ_BYTES) < len(flood)
    assert Path(written[0].path).stat().st_size == 0
    assert [line["text"] for line in passed_on(written, f"{AT} WARN  [1] A:1 | after\n")] == ["after"]


@given(st.binary())
def test_whatever_is_written_is_passed_on_or_left_out(said: bytes) -> None:
    file = ClientLog()
    try:
        with capture_logs() as lines:
            os.pwrite(file._file, said + b"\n", 0)
            file.read()
    finally:
        os.close(file._file)
    assert all(line["event"].startswith("bus.client") for line in lines)
