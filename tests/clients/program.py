"""A client's program -> what it printed on standard output; it must end well, and in time."""

import asyncio
from collections.abc import Mapping
from pathlib import Path


async def printed_by(
    *command: str | Path, seconds: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> str:
    """Run it to its end; what it says on standard error is the message of a failure."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()
