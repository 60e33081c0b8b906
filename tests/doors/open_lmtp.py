"""A gateway with a model of tokens, and a client of its LMTP door that reads messages as they come."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientWebSocketResponse

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.token_llm import TokenLlm
from tests.flow.open_gateway import ON_ANY_PORT, Opened, open_gateway, until_listed
from tg_base.config import GatewayConfig

MODEL = "counting"


class Lmtp:
    """One client."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        """One message."""
        await self.socket.send_str(f"{kind} {json.dumps(fields)}")

    async def generate(self, stream: int, prompt: Any, **fields: Any) -> None:
        """Begin a stream."""
        await self.send("GENERATE", **{"model": MODEL, "prompt": prompt, "stream_id": stream} | fields)

    async def read(self) -> tuple[str, list[dict[str, Any]]]:
        """The next message: its type, and its items."""
        kind, _, data = (await self.socket.receive_str(timeout=10)).partition(" ")
        assert "\n" not in data
        items = json.loads(data)
        assert isinstance(items, list)
        return kind, items

    async def item(self, kind: str = "MSG") -> dict[str, Any]:
        """The only item of the next message, which has this type."""
        told, items = await self.read()
        assert (told, len(items)) == (kind, 1), (told, items)
        return items[0]

    async def stream(self, stream: int) -> list[dict[str, Any]]:
        """The items of a stream, to its end; nothing else comes before it."""
        return (await self.streams(stream))[stream]

    async def streams(self, *streams: int) -> dict[int, list[dict[str, Any]]]:
        """The items of several, to the ends of all."""
        items: dict[int, list[dict[str, Any]]] = {stream: [] for stream in streams}
        while not all(each and is_final(each[-1]) for each in items.values()):
            kind, came = await self.read()
            assert kind == "TOKEN", (kind, came)
            for item in came:
                assert not (items[item["stream_id"]] and is_final(items[item["stream_id"]][-1])), item
                items[item["stream_id"]].append(item)
        return items


def is_final(item: dict[str, Any]) -> bool:
    """Whether it ends its stream."""
    return "error" in item or item["finish_reason"] is not None


@asynccontextmanager
async def open_lmtp(
    llm: CountingLlm | None = None, config: GatewayConfig = ON_ANY_PORT, path: str = "/lmtp"
) -> AsyncIterator[tuple[Opened, Lmtp]]:
    """Both, once the model is known."""
    async with open_gateway(config, llm=llm or TokenLlm()) as it:
        await until_listed(it.http)
        async with it.http.ws_connect(path) as socket:
            yield it, Lmtp(socket)
