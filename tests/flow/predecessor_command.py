"""A command of the predecessor as a process of its own."""

import asyncio
import os
from pathlib import Path

from tests.missing import skip_or_fail
from tests.predecessor_tools import ToolsMissing, tools


def folder_or_skip() -> Path:
    """Where the commands are; skips the test where they can't be had, or fails it where they must."""
    try:
        return tools()
    except ToolsMissing as missing:
        skip_or_fail(str(missing))


async def run(folder: Path, url: str, tool: str, *arguments: str, token: str = "") -> tuple[str, str]:
    """What a tool prints on stdout and on stderr."""
    environment = {"PATH": os.environ["PATH"], "TRUSTGRAPH_URL": url}
    if token:
        environment["TRUSTGRAPH_TOKEN"] = token
    process = await asyncio.create_subprocess_exec(
        folder / tool,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode(), err.decode()
