"""A schema in a request that points to another document: nobody fetches it (templates: `test_prompt_service.py`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.fakes.stream_server import stream_server
from tests.flow.openai_asking import Open, chunks
from tg_llama.grammar.json_grammar import json_grammar
from tg_schema import TextCompletionRequest, Tool
from tg_schema.errors import BadRequest


@dataclass
class Canary:
    """A server that nobody should visit."""

    url: str = ""
    visits: list[bytes] = field(default_factory=list)
    visited: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Canary"]:
        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits.append(await reader.readline())
            self.visited.set()

        async with stream_server(visit) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


def schemas(url: str) -> list[dict[str, Any]]:
    return [
        {"$ref": f"{url}/a.json"},
        {"type": "object", "properties": {"a": {"$ref": f"{url}/a.json#/$defs/a"}}, "required": ["a"]},
        {"$id": f"{url}/root.json", "type": "object", "properties": {"a": {"$ref": "other.json"}}},
        {"type": "array", "items": {"$dynamicRef": f"{url}/a.json"}},
        {"$schema": f"{url}/meta.json", "$ref": "file:///etc/hostname"},
    ]


async def test_the_grammar_refuses_them() -> None:
    async with Canary().listening() as canary:
        for schema in schemas(canary.url):
            with pytest.raises(BadRequest, match="schema"):
                await asyncio.to_thread(json_grammar, schema)
        assert canary.visits == []
        _, writer = await asyncio.open_connection(*canary.url.removeprefix("http://").split(":"))
        writer.write(b"here\n")
        await asyncio.wait_for(canary.visited.wait(), 5)
        writer.close()


async def test_a_provider_gets_them_as_they_are(openai_server: OpenAiServer, open_openai: Open) -> None:
    async with Canary().listening() as canary:
        provider = await open_openai()
        for schema in schemas(canary.url):
            tool = Tool("look", "looks", schema)
            for request in (
                TextCompletionRequest(prompt="p", streaming=True, model="ours", response_format="json", schema=schema),
                TextCompletionRequest(prompt="p", streaming=True, model="ours", tools=(tool,)),
            ):
                try:
                    await chunks(provider, request)
                except BadRequest:
                    continue
        assert len(openai_server.exchanges) >= len(schemas(canary.url))
        assert canary.visits == []
