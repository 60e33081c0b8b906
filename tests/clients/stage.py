"""A program of a client -> what it has seen of a gateway with the provider openai, before a fake of OpenAI's API."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

from tests.clients.clients import Client
from tests.clients.environment import command_of
from tests.clients.program import printed_by
from tests.door_matrix.stage import open_stage
from tests.fakes.listening_openai import ListeningServer
from tg_base.config import ApiKey, GatewayConfig
from tg_flow.providers import open_provider

ASK_SECONDS: Final = 600.0
TOKEN: Final = "right"
LOCKED: Final = GatewayConfig(port=0, drain=0.05, keys=(ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest()),))
MODEL: Final = ListeningServer.model
NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that is not there: a client that would reach further than this machine fails."""

Doors = dict[str, dict[str, dict[str, Any]]]
"""Door -> feature -> what the client saw."""


async def ask(client: Client, folder: Path) -> Doors:
    """Run the client's program with URL, key and model; it prints a line of JSON."""
    command = await asyncio.to_thread(command_of, client)
    key = folder / "key"
    key.write_text(ListeningServer.key, "utf-8")
    async with ListeningServer.running() as wire:
        options = {"base_url": f"{wire.url}/v1", "key_file": str(key), "tries": 1}
        provider = await open_provider("openai", MODEL, options)
        async with open_stage(config=LOCKED, provider=provider) as it:
            asking = (*command, it.gateway.url.rstrip("/"), TOKEN, MODEL)
            printed = await printed_by(*asking, seconds=ASK_SECONDS, environment=environment(folder), folder=folder)
        await provider.aclose()
    seen: Doors = json.loads(printed.splitlines()[-1])
    return seen


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine's but the path; each client is told in its own words to ask nobody else."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LLM_USER_PATH": str(folder / "llm"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
    }
