"""Model servers -> scheduler: the load in their metrics pages, scraped periodically."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Literal

import structlog
from msgspec import Meta, Struct
from msgspec.structs import replace
from typing_extensions import override

from tg_base.llm import open_pool
from tg_base.runtime import Entered, translate_defects
from tg_picker.core import Endpoint, LoadReport
from tg_picker.pools.page_reader import read_page
from tg_picker.pools.server_kinds import SERVER_KINDS, ServerKind
from tg_picker.pools.server_tasks import ServerTasks
from tg_schema import TgError
from tg_schema.errors import BadRequest, IncompleteStream, Internal, ProtocolError, Timeout, TooLarge, Unavailable

log = structlog.get_logger()

MAX_PAGE_BYTES = 2 * 1024 * 1024
"""Largest page, in bytes; vLLM's has about 50,000, and more after thousands of adapters."""

MAX_INLINE_BYTES = 128 * 1024
"""Largest page that is read on the event loop, in a few milliseconds. A page of MAX_PAGE_BYTES that is made to be slow
would block the loop for 0.4 s, 20 times a second."""

MAX_SCRAPES_PER_SECOND = 200.0
"""Most scrapes of all servers together. With many servers the interval grows, so that pages do not starve requests."""

MAX_BACKOFF_SECONDS = 5.0
"""Longest pause before the next scrape of a failing server."""

REFUSED_BACKOFF_SECONDS = 0.25
"""Longest pause if the server refuses connections: a scrape costs next to nothing, and requests may wait for it."""

Returned = Callable[[Endpoint, LoadReport | None, bool], None]
"""Called on the loop when a server can be reached again: with its report, if its page can be read, and whether it
refused connections before. It must not fail and must not wait."""

Observer = Callable[[Endpoint, LoadReport], None]
"""Called with each report, on the loop; for instance `Scheduler.observe`. It must not fail and must not wait."""

_DEFECT = "a defect, whose traceback is in the log"


class ScrapeOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How servers are scraped.

    Attributes:
        kind: a key of `SERVER_KINDS`, or "auto".
        path: the path of the page; "" = the default of this kind of server.
        tls: whether the page is served over https.
        interval: seconds between two scrapes of a server.
        timeout: seconds that one scrape may take.
        concurrency: most concurrent scrapes.
    """

    kind: Literal["auto", "vllm", "sglang", "triton", "trtllm-serve", "llama.cpp", "tokengrid"] = "auto"
    path: str = ""
    tls: bool = False
    interval: Annotated[float, Meta(ge=0.005, le=3600)] = 0.05
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 32

    @property
    def page_path(self) -> str:
        """The path of the page."""
        return self.path or SERVER_KINDS.get(self.kind, ServerKind()).path


def check_path(path: str, *keys: str) -> None:
    """Refuse a path that cannot become a part of a URL.

    Raises:
        BadRequest: it is not empty, and does not begin with a slash or has blanks; `keys` are its position.
    """
    if path and not path.startswith("/"):
        raise BadRequest(f"{'.'.join(keys)} must begin with a slash, as /{path[:100]}").at(*keys)
    if " " in path or not path.isprintable():
        raise BadRequest(f"{'.'.join(keys)} may have no blanks; write %20 for one").at(*keys)


class _Target(Struct):
    """A server that is scraped."""

    endpoint: Endpoint
    failures: int = 0
    reason: str = ""


class Scraper(Entered):
    """Scrapes servers while it is entered. After a failed scrape, the last report stays and becomes older.

    Each server has its own timeout and backoff, and one that hangs occupies a place of `concurrency` no longer than
    `timeout`. The log says once that a server's page cannot be read (`scrape.failed`), and once that it can be again.

    Args:
        observe: called with each report.
        options: how to scrape.
        returned: called for each server that can be reached again; None = not called.

    Attributes:
        unreachable: the addresses that refused the last connection, or did not answer on it.
        refusing: those of them that refused the connection: requests to them are useless until they accept one.
    """

    def __init__(
        self, observe: Observer, options: ScrapeOptions | None = None, returned: Returned | None = None
    ) -> None:
        super().__init__()
        self._returned = returned
        self._observe = observe
        self._options = options or ScrapeOptions()
        self._targets: dict[str, _Target] = {}
        self._tasks: ServerTasks[str] = ServerTasks()
        self.unreachable = self.refusing = frozenset[str]()
        self._free = asyncio.Semaphore(self._options.concurrency)

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        # Opening the first pool imports aiohttp, which takes a while. Use no proxy of the environment: it leads out,
        # but servers are inside, and are scraped 20 times a second.
        self._pool = await asyncio.to_thread(open_pool, proxied=False)
        stack.push_async_callback(self._pool.aclose)
        stack.push_async_callback(self._tasks.aclose)

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """Scrape these servers from now on. The state of servers that stay is kept."""
        known, self._targets = self._targets, {}
        for endpoint in endpoints:
            target = self._targets[endpoint.address] = known.get(endpoint.address) or _Target(endpoint)
            target.endpoint = endpoint
        # Spread the scrapes over the interval, so that they do not come in bursts.
        step = self._interval(len(endpoints)) / max(len(endpoints), 1)
        targets = enumerate(self._targets.items())
        self._tasks.update({address: partial(self._follow, target, step * at) for at, (address, target) in targets})
        self.unreachable = self.unreachable.intersection(self._targets)
        self.refusing = self.refusing.intersection(self._targets)

    @property
    def failing(self) -> dict[str, str]:
        """The servers whose page cannot be read, by address, each with the reason."""
        return {address: target.reason for address, target in self._targets.items() if target.failures}

    def _interval(self, servers: int) -> float:
        return max(self._options.interval, servers / MAX_SCRAPES_PER_SECOND)

    async def _follow(self, target: _Target, pause: float) -> None:
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(pause)
            async with self._free:
                began = now()
                await self._look(target)
            # After a scrape that took longer than the interval, the next one follows at once, but only one.
            pause = max(began + self._find_pause(target) - now(), 0.0)

    def _find_pause(self, target: _Target) -> float:
        """Seconds from one scrape to the next."""
        pause = self._interval(len(self._targets))
        longest = REFUSED_BACKOFF_SECONDS if target.endpoint.address in self.refusing else MAX_BACKOFF_SECONDS
        return min(pause * 2.0 ** min(target.failures, 16), max(longest, pause)) if target.failures else pause

    async def _look(self, target: _Target) -> None:
        try:
            with translate_defects(Internal, _DEFECT, "scrape.defect", log):
                self._succeed(target, await self._read(target.endpoint))
        except TgError as error:
            self._fail(target, error)

    async def _read(self, endpoint: Endpoint) -> LoadReport:
        options = self._options
        try:
            async with asyncio.timeout(options.timeout):
                page = await self._fetch(
                    f"{'https' if options.tls else 'http'}://{endpoint.address}{options.page_path}"
                )
        except TimeoutError:
            raise Timeout(f"the page takes longer than {options.timeout:g} s") from None
        except (Unavailable, IncompleteStream):
            raise Unavailable("the server cannot be reached, or breaks the connection") from None
        # Take the time after the page has arrived: its numbers are at most one scrape old.
        now = asyncio.get_running_loop().time()
        read = partial(read_page, page, options.kind, now)
        report = read() if len(page) <= MAX_INLINE_BYTES else await asyncio.to_thread(read)
        if report is None:
            raise ProtocolError(f"the page has no plausible load of a server of the kind {options.kind}")
        return replace(report, interval=self._interval(len(self._targets)))

    async def _fetch(self, url: str) -> bytes:
        answer = await self._pool.ask("GET", url, (), None)
        try:
            if answer.status != 200:
                raise ProtocolError(f"the page was answered with status {answer.status}")
            page = bytearray()
            while len(page) <= MAX_PAGE_BYTES and (part := await answer.read()):
                page += part
            if len(page) > MAX_PAGE_BYTES:
                raise TooLarge(f"the page has more than {MAX_PAGE_BYTES} bytes")
            return bytes(page)
        finally:
            answer.close()

    def _fail(self, target: _Target, error: TgError) -> None:
        endpoint = target.endpoint
        if not target.failures:
            log.warning("scrape.failed", server=endpoint.name, address=endpoint.address, reason=error.message)
        target.failures += 1
        target.reason = error.message
        self._note_reached(endpoint, error)

    def _succeed(self, target: _Target, report: LoadReport) -> None:
        endpoint = target.endpoint
        if target.failures:
            log.info("scrape.recovered", server=endpoint.name, address=endpoint.address)
        target.failures, target.reason = 0, ""
        self._note_reached(endpoint, None, report)
        self._observe(endpoint, report)

    def _note_reached(self, endpoint: Endpoint, error: TgError | None, report: LoadReport | None = None) -> None:
        one = frozenset({endpoint.address})
        # A server without such a page can still be reached.
        is_away = isinstance(error, Unavailable | Timeout)
        if not is_away and one <= self.unreachable and self._returned is not None:
            self._returned(endpoint, report, one <= self.refusing)
        self.unreachable = self.unreachable | one if is_away else self.unreachable - one
        self.refusing = self.refusing | one if isinstance(error, Unavailable) else self.refusing - one
