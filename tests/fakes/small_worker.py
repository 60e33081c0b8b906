"""A worker that serves nothing: it says that it is ready, and waits for its end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tg_base.server import ProcessEvents, Work, serve_process
from tg_schema.errors import Unavailable


def serve(work: Work, ready: Callable[[str], None]) -> None:
    """Serve, unless there is a file `broken` in the folder that is its order."""
    if (Path(work.order) / "broken").exists():
        raise Unavailable(f"worker {work.number} has no\nroom")

    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        yield f"ready: {len(work.sockets)} sockets"

    serve_process(serving(), ready, events=ProcessEvents(lifeline=work.lifeline))
