"""Coding agents of others, unmodified, from the npm registry: run against a gateway and nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from tests.fakes.openai_chat_server import CompatibleServer
from tests.fakes.plan import Fault, Plan
from tests.npm_package import npm_package_or_skip
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema.errors import ContextLengthExceeded

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.197"),
    "cn": ("@continuedev/cli", "1.5.47"),
    "codex": ("@openai/codex", "0.169.0"),
    "copilot": ("@github/copilot", "1.0.102"),
}
"""The versions whose requests were read; a newer one may send others."""
MODEL = "counting"
"""As the gateway of tests announces it."""
RUN_SECONDS = 120.0


def agent_or_skip(name: str) -> Path:
    """The agent's command, installed at the first use."""
    return npm_package_or_skip(*PACKAGES[name])[1] / "node_modules" / ".bin" / name


async def run_agent(
    program: Path, *arguments: str, folder: Path, settings: Mapping[str, str], code: int = 0
) -> tuple[str, str]:
    """What the agent prints, and its log; its own files are in `folder`, and it knows no other host."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "NO_COLOR": "1", **settings}
    (folder / "home").mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), RUN_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == code, out.decode() + err.decode()
    return out.decode().strip(), err.decode()


@asynccontextmanager
async def full_context() -> AsyncIterator[tuple[CompatibleServer, LlmService]]:
    """A hosted model that refuses each prompt as too long, and a provider that would ask it three times."""
    async with CompatibleServer.running() as server:
        server.play(Plan(fault=Fault.REFUSE, error=ContextLengthExceeded))
        options = {"base_url": f"{server.url}/v1", "upstream_model": server.model, "tries": 3}
        async with aclosing(await open_provider("openai-compatible", MODEL, options)) as service:
            yield server, service
