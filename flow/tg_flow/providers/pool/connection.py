"""Provider -> a server of the pool: requests over shared connections, and the load that each answer tells."""

from tg_base.llm import HttpAnswer, open_pool
from tg_base.pools import LOAD_FORMAT, LOAD_REQUEST_HEADER
from tg_schema.errors import BadRequest


class PoolConnection:
    """The connections to all servers, with one key. Made in a thread: the first one imports aiohttp.

    Args:
        scheme: "http" or "https".
        path: of the API.
        key: sent to each server; None = none is.
    """

    def __init__(self, scheme: str, path: str, key: str | None) -> None:
        self._scheme = scheme
        self._path = path
        self._headers = [
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            (LOAD_REQUEST_HEADER, LOAD_FORMAT),
        ]
        if key:
            self._headers.append(("Authorization", f"Bearer {key}"))
        self._pool = open_pool()

    async def ask(self, address: str, body: bytes) -> HttpAnswer:
        """Request a streamed answer of a server, and return it whatever its status.

        Raises:
            TgError: there is none.
        """
        url = f"{self._scheme}://{address}{self._path}/chat/completions"
        return await self._pool.ask("POST", url, self._headers, body)

    async def post(self, body: bytes) -> HttpAnswer:
        """What needs no picked server; a pool has nothing of that kind."""
        raise BadRequest("a pool answers conversations alone; ask a server of it")

    async def models(self) -> HttpAnswer:
        """See `post`."""
        return await self.post(b"")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()
