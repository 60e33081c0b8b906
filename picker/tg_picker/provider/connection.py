"""Provider -> a server of the pool: requests over shared connections, and the load in each answer."""

from collections.abc import Awaitable
from functools import lru_cache
from typing import Final

from tg_base.llm import HttpAnswer, open_pool
from tg_base.telemetry import LOAD_REQUEST_HEADER
from tg_picker.pools import LOAD_FORMAT
from tg_picker.pools.adapter_loader import LOAD_PATH

MAX_TARGETS: Final = 1_000
"""Most servers whose encoded URLs and headers are cached; the most recently used ones stay."""


class PoolConnection:
    """The connections to all servers, with one key. Create it in a thread, because the first one imports aiohttp.

    Args:
        scheme: "http" or "https".
        path: the path of the API.
        key: the key that each server gets; None = no key.
    """

    def __init__(self, scheme: str, path: str, key: str | None) -> None:
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            (LOAD_REQUEST_HEADER, LOAD_FORMAT),
        ]
        if key:
            headers.append(("Authorization", f"Bearer {key}"))
        self._pool = open_pool()
        self._load_url = f"{scheme}://{{}}{path}{LOAD_PATH}"
        self._load_headers = headers
        # Requests to one server differ only in their body. Building the rest anew would double the cost of sending.
        self._target = lru_cache(MAX_TARGETS)(
            lambda address: self._pool.target(f"{scheme}://{address}{path}/chat/completions", headers)
        )

    def ask(self, address: str, body: bytes) -> Awaitable[HttpAnswer]:
        """Request a streamed answer from a server. Returns it whatever its status.

        Raises:
            TgError: there is no answer.
        """
        return self._pool.send("POST", self._target(address), body)

    def load(self, address: str, body: bytes) -> Awaitable[HttpAnswer]:
        """Tell a server to load an adapter. Returns its answer whatever its status.

        Raises:
            TgError: there is no answer.
        """
        return self._pool.ask("POST", self._load_url.format(address), self._load_headers, body)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()
