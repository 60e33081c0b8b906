"""MCP servers as tools, through the official SDK on both ends: over stdio and over streamable HTTP."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, tell
from tests.flow.agent_turns import DONE, call, observed, refusal
from tests.free_port import free_port
from tests.until import until
from tg_schema.errors import NotFound, Unavailable

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.fakes.mcp_server"]
STDIO = f"""
[tools.tiny]
kind = "mcp"
timeout = 20
options = {{ command = {json.dumps(COMMAND)}, cwd = {json.dumps(str(ROOT))} }}
"""


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """The configuration for a server over streamable HTTP; it takes seconds to start."""
    port = free_port()
    with subprocess.Popen([*COMMAND, str(port)], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f'\n[tools.tiny]\nkind = "mcp"\noptions.url = "http://127.0.0.1:{port}/mcp"\n'
        finally:
            process.kill()


async def test_a_stdio_server_is_asked_in_one_session(tmp_path: Path) -> None:
    first, second, third = await observed(
        tmp_path, STDIO, call("tiny_count"), call("tiny_add", a=2, b=3), call("tiny_count")
    )
    assert second == "5"
    assert first.startswith("1 of ")
    assert third == first.replace("1 of", "2 of")


async def test_its_tools_are_described_to_the_model(http: str, tmp_path: Path) -> None:
    llm = TurnsLlm(DONE)
    await tell(llm, tmp_path, BASE + http)
    assert "tiny_add: Adds two numbers." in (llm.requests[0].system or "")
    assert "tiny_walk" in (llm.requests[0].system or "")


async def test_progress_is_shown_as_it_comes(http: str, tmp_path: Path) -> None:
    told = await tell(TurnsLlm(call("tiny_walk", steps=2), DONE), tmp_path, BASE + http)
    pieces = [record.content for record in told.records if record.chunk_type == "observation"]
    assert "".join(piece or "" for piece in pieces) == "step 1\nstep 2\nthere"
    assert len(pieces) >= 2


async def test_a_failure_is_an_observation_and_so_is_every_kind_of_content(http: str, tmp_path: Path) -> None:
    failed, wrong, shown = await observed(
        tmp_path, http, call("tiny_fail"), call("tiny_add", a="x", b=1), call("tiny_show")
    )
    assert shown == "a text\na note\n(resource)\nanother: note://3\n(image)"
    assert "no luck" in failed
    assert failed.endswith("error: the tool says that it failed")
    assert wrong.startswith("error: the arguments do not fit the tool's schema: a breaks")


async def test_a_server_that_ends_is_started_again(tmp_path: Path) -> None:
    before, gone, after = await observed(tmp_path, STDIO, call("tiny_count"), call("tiny_leave"), call("tiny_count"))
    assert gone == "error: the MCP server has ended; the next call starts it again"
    assert after.startswith("1 of ")
    assert after != before


async def test_a_call_that_is_left_is_cancelled_at_the_server(tmp_path: Path) -> None:
    file = tmp_path / "told"
    config = STDIO.replace("timeout = 20", "timeout = 0.5")
    (late,) = await observed(tmp_path, config, call("tiny_hang", file=str(file)))
    assert late == "error: no result within 0.5 s"
    await until(lambda: file.read_text() == "stopped")


async def test_one_tool_of_a_server_under_another_name(http: str, tmp_path: Path) -> None:
    config = http.replace("[tools.tiny]", "[tools.plus]") + 'options.tool = "add"\n'
    assert await observed(tmp_path, config, call("plus", a=1, b=1)) == ["2"]


async def test_what_cannot_be_used_is_named_with_its_line(http: str, tmp_path: Path) -> None:
    error = await refusal(tmp_path, http + 'options.tool = "nope"\n')
    assert isinstance(error, NotFound)
    assert 'tg.toml, line 12: the MCP server has no tool "nope"; it has add, count' in error.message
    error = await refusal(tmp_path, '\n[tools.tiny]\nkind = "mcp"\noptions.command = ["/no/such/program"]\n')
    assert isinstance(error, Unavailable)
    assert "line 11: the MCP server cannot be started or reached" in error.message
    error = await refusal(tmp_path, '\n[tools.tiny]\nkind = "mcp"\n')
    assert "an MCP server needs either command" in error.message
