"""Asks for batches as OpenAI's SDK does, and what a gateway keeps of them."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI

from tests.flow.background_asking import DEADLINE
from tg_base.bus import Bus
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.jobs import JobLogs, batch_store
from tg_schema.topics import Topics

KEYED = GatewayConfig(
    port=0,
    drain=0.05,
    keys=tuple(ApiKey(name=each, sha256=hashlib.sha256(each.encode()).hexdigest()) for each in ("one", "two")),
)
MODELS: Any = "/v1/models"
CHAT: Any = "/v1/chat/completions"
TWO_PARTS = b"a" * batch_store.PART_BYTES + b"b"
"""The bytes of a file that is kept in two parts."""


def line(custom_id: str, words: int = 3, *, url: str = CHAT, **fields: Any) -> dict[str, Any]:
    """A request for some words."""
    body = {"model": "counting", "messages": [{"role": "user", "content": str(words)}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(lines: Sequence[object]) -> bytes:
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines).encode()


async def begin(client: AsyncOpenAI, lines: Sequence[object], endpoint: Any = CHAT) -> Any:
    file = await client.files.create(file=("in.jsonl", write(lines)), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"of": "a test"}
    )


async def until_over(client: AsyncOpenAI, batch: Any) -> Any:
    async with asyncio.timeout(DEADLINE):
        while batch.status in {"validating", "in_progress", "cancelling"}:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def until_answered(client: AsyncOpenAI, batch: Any, lines: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            counts = (await client.batches.retrieve(batch.id)).request_counts
            if counts is not None and counts.completed >= lines:
                return
            await asyncio.sleep(0.005)


async def until_begun(client: AsyncOpenAI, begun: Sequence[Any], most: int) -> int:
    """Until so many of them are made; how many are."""
    async with asyncio.timeout(DEADLINE):
        while True:
            found = [(await client.batches.retrieve(each.id)).status for each in begun].count("in_progress")
            if found >= most:
                return found
            await asyncio.sleep(0.01)


async def read(client: AsyncOpenAI, file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    return [json.loads(each) for each in (await client.files.content(file)).content.splitlines()]


def keep_on(bus: Bus, queue: str = Topics().batches) -> batch_store.KeyBatches:
    """What a gateway without keys keeps there."""
    return batch_store.KeyBatches(JobLogs(bus, Topics(), scope="batches "), "anybody", queue)
