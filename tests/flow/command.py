"""A command of ours as a process of its own."""

import asyncio
import os
import sysconfig
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

SCRIPTS = Path(sysconfig.get_path("scripts"))
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    out: str
    err: str


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, without what a developer may have set for the commands."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("TOKENGRID_", "TRUSTGRAPH_"))
    }
    return inherited | {"PYTHONWARNINGS": "error"} | dict(extra)


@asynccontextmanager
async def started(
    program: str,
    *arguments: str,
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int = PIPE,
    env: Mapping[str, str] = NOTHING,
    **more: str,
) -> AsyncIterator[Process]:
    """Start a command of ours, or another program, which is killed here at the latest.

    `env` and `more` go to its environment.
    """
    own = SCRIPTS / program
    process = await asyncio.create_subprocess_exec(
        own if own.exists() else program,
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment({**env, **more}),
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(process.communicate(), 10)


async def ended(process: Process, stdin: bytes = b"", within: float = 60.0) -> Ended:
    """Write, close stdin, and wait for the end."""
    out, err = await asyncio.wait_for(process.communicate(stdin if process.stdin else None), within)
    return Ended(process.returncode, (out or b"").decode(), (err or b"").decode())


async def ran(program: str, *arguments: str, data: bytes = b"", env: Mapping[str, str] = NOTHING, **more: str) -> Ended:
    """Run a command to its end, with `data` on its standard input."""
    async with started(program, *arguments, env={**env, **more}) as process:
        return await ended(process, data)


def out_of(process: Process) -> asyncio.StreamReader:
    """What a process writes on its standard output."""
    assert process.stdout is not None
    return process.stdout


@asynccontextmanager
async def terminal_pair() -> AsyncIterator[tuple[int, int]]:
    """A terminal: our end of it, and a command's."""
    ours, theirs = os.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)
