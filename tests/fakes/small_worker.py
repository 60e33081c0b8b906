"""A worker that serves nothing: it says that it is ready, and waits for its end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tg_base.server import LEAVING, ProcessEvents, Work, serve_process
from tg_schema.errors import Unavailable


def serve(work: Work, ready: Callable[[str], None]) -> None:
    """Serve, unless there is a file `broken` in the folder that is its order; end once a file `busy` is gone."""
    folder = Path(work.order)
    if (folder / "broken").exists():
        raise Unavailable(f"worker {work.number} has no\nroom")

    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        yield f"ready: {len(work.sockets)} sockets"
        while (folder / "busy").exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(0.01)

    serve_process(serving(), ready, events=ProcessEvents(ending=lambda _: ready(LEAVING), lifeline=work.lifeline))
