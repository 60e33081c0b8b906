"""Loads an adapter on a picked server that may lack it, by vLLM's `load_lora_adapter`, called once for each server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from tg_base.llm import HttpAnswer
from tg_picker.core import Endpoint, Scheduler
from tg_schema import TgError
from tg_schema.errors import BadRequest

log = structlog.get_logger()

LOAD_PATH: Final = "/load_lora_adapter"
"""Appended to the path of the API: https://docs.vllm.ai/en/latest/features/lora.html"""
PLACE: Final = "{adapter}"
LOAD_SECONDS: Final = 30.0
"""How long a request waits for its adapter. Then it is sent anyway, and its server reports the error."""
AGAIN_SECONDS: Final = 10.0
"""Seconds before a server that failed to load an adapter is told again to load it."""
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_REASON_CHARACTERS: Final = 200

Post = Callable[[str, bytes], Awaitable[HttpAnswer]]
"""Sends a body to LOAD_PATH of the server at an address. Returns the answer, whatever its status."""


def check_source(source: str) -> None:
    """Refuse a source without a placeholder for the adapter's name.

    Raises:
        BadRequest: it has no placeholder, or more than one.
    """
    if source and source.count(PLACE) != 1:
        raise BadRequest(f"adapter_source needs {PLACE} once, for instance /srv/adapters/{PLACE}").at("adapter_source")


class AdapterLoader:
    """Makes servers load an adapter before a request for it is sent to them.

    The request is sent whether or not the load succeeds, because a server that lacks the adapter answers 404 itself.
    Load only adapters that the operator's routes name, because the name becomes a part of a path.

    Args:
        source: the path of adapters on the servers, with PLACE for the name; "" = not known, so nothing is loaded.
        scheduler: reports when a server may have lost its adapters.
    """

    def __init__(self, source: str, scheduler: Scheduler) -> None:
        self._source = source
        # None: the adapter is loaded. A number: when it last failed to load.
        self._failed_at: dict[tuple[str, str], float | None] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        if source:
            scheduler.missing.on_lost = self._forget

    def find_source(self, adapter: str) -> str:
        """The adapter's location for the servers, or its name if the location is not known."""
        return self._source.replace(PLACE, adapter) or adapter

    def has(self, endpoint: Endpoint, adapter: str) -> bool:
        """Whether the server has confirmed the adapter, and cannot have lost it since."""
        return self._failed_at.get((endpoint.address, adapter), 0.0) is None

    async def load(self, endpoint: Endpoint, adapter: str, post: Post) -> None:
        """Return when the server has answered that it has the adapter, or that it does not load it.

        Args:
            endpoint: the server.
            adapter: the adapter, which a route names.
            post: sends the call.
        """
        if not self._source or self.has(endpoint, adapter):
            return
        key = endpoint.address, adapter
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            # Concurrent requests load it only once. If the first one's client leaves, the next one sends the call.
            async with lock:
                if not self._is_decided(key):
                    await self._load(endpoint, adapter, post)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    def _is_decided(self, key: tuple[str, str]) -> bool:
        failed_at = self._failed_at.get(key, float("-inf"))
        return failed_at is None or asyncio.get_running_loop().time() - failed_at < AGAIN_SECONDS

    async def _load(self, endpoint: Endpoint, adapter: str, post: Post) -> None:
        body = msgspec.json.encode({"lora_name": adapter, "lora_path": self.find_source(adapter)})
        fields: dict[str, object] = {"server": endpoint.name, "address": endpoint.address, "adapter": adapter}
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                status, text = await _read(await post(endpoint.address, body))
        except TimeoutError:
            status, text = 0, f"no answer in {LOAD_SECONDS:g} s"
        except TgError as error:
            status, text = 0, error.message
        # vLLM answers 400 if it already has an adapter of this name.
        if status == 200 or (status == 400 and "already" in text):
            self._failed_at[endpoint.address, adapter] = None
            log.info("adapter.loaded", **fields, anew=status == 200)
        else:
            self._failed_at[endpoint.address, adapter] = asyncio.get_running_loop().time()
            log.warning("adapter.not_loaded", **fields, status=status, reason=text[:MAX_REASON_CHARACTERS])

    def _forget(self, address: str, adapter: str | None) -> None:
        """Forget that an adapter was loaded. None: forget everything about the server, because it restarted."""
        for key, failed_at in list(self._failed_at.items()):
            if key[0] == address and (adapter is None or (key[1] == adapter and failed_at is None)):
                del self._failed_at[key]


async def _read(answer: HttpAnswer) -> tuple[int, str]:
    data = b""
    try:
        while len(data) < MAX_ANSWER_BYTES and (part := await answer.read()):
            data += part
    finally:
        answer.close()
    return answer.status, data.decode("utf-8", "replace")
