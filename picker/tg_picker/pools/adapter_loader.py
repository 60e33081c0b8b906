"""Loads an adapter on a picked server that may lack it: vLLM's `load_lora_adapter`, called once for each server."""

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
"""Behind the path of the API: https://docs.vllm.ai/en/latest/features/lora.html"""
PLACE: Final = "{adapter}"
LOAD_SECONDS: Final = 30.0
"""How long a request waits for its adapter; then it is sent anyway, and its server reports the error."""
AGAIN_SECONDS: Final = 10.0
"""Seconds before a server that did not load an adapter is asked again."""
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_REASON_CHARACTERS: Final = 200

Post = Callable[[str, bytes], Awaitable[HttpAnswer]]
"""Sends a body to LOAD_PATH of the server at an address, and returns the answer, whatever its status."""


def check_source(source: str) -> None:
    """Refuse a pattern of sources without a place for the adapter's name.

    Raises:
        BadRequest: it has none, or more than one.
    """
    if source and source.count(PLACE) != 1:
        raise BadRequest(f"adapter_source needs {PLACE} once, for instance /srv/adapters/{PLACE}").at("adapter_source")


class AdapterLoader:
    """Loads adapters on servers before requests for them are sent there.

    The request is sent whether or not the load succeeds: a server that lacks the adapter answers 404 itself.
    Only adapters that the operator's routes name may be asked for: their names become a part of a path.

    Args:
        source: where an adapter is for the servers, with PLACE for its name; "" = not known, and nothing is loaded.
        scheduler: reports when a server may have lost its adapters.
    """

    def __init__(self, source: str, scheduler: Scheduler) -> None:
        self._source = source
        # None: it is loaded; otherwise when it could not be loaded last.
        self._failed_at: dict[tuple[str, str], float | None] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        if source:
            scheduler.missing.on_lost = self._forget

    def find_source(self, adapter: str) -> str:
        """The adapter's location for the servers; its name if the location is not known."""
        return self._source.replace(PLACE, adapter) or adapter

    def has(self, endpoint: Endpoint, adapter: str) -> bool:
        """Whether the server confirmed the adapter, and has not possibly lost it since."""
        return self._failed_at.get((endpoint.address, adapter), 0.0) is None

    async def load(self, endpoint: Endpoint, adapter: str, post: Post) -> None:
        """Return once the server says that it has the adapter, or that it does not load it.

        Args:
            endpoint: the server.
            adapter: the adapter of a route.
            post: asks the server.
        """
        if not self._source or self.has(endpoint, adapter):
            return
        key = endpoint.address, adapter
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            # Requests that come together load it once; if the first one's client leaves, the next one asks.
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
        # vLLM answers 400 to a name that it has already.
        if status == 200 or (status == 400 and "already" in text):
            self._failed_at[endpoint.address, adapter] = None
            log.info("adapter.loaded", **fields, anew=status == 200)
        else:
            self._failed_at[endpoint.address, adapter] = asyncio.get_running_loop().time()
            log.warning("adapter.not_loaded", **fields, status=status, reason=text[:MAX_REASON_CHARACTERS])

    def _forget(self, address: str, adapter: str | None) -> None:
        """Forget an adapter that was loaded; None: all that is known of the server, since it restarted."""
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
