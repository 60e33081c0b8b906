"""One request, traced: which files it touches from the door to the provider, and a chunk on its way back.

Calls are those of shipped code, a coroutine that goes on counts as one; a change of file is a call into another file
than the call before.

The pipeline is the whole one, on the memory bus. It has run long enough for both ends to know each other's clocks, so
that nothing is asked twice. What does not happen each time (a heartbeat, for one) is left out: several requests are
traced, and only the files that all of them touch count.

A file counts if any of its Python code runs on the way, be it a property of a record, and once however often. This is
the rule of the first measurement, which gave 30 files for a request and 19 for a chunk: at the same commit, 1fecd07,
this script gives 30 and 20.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import QUICK, Opened, open_gateway
from tests.unit.source_imports import FILES

REQUESTS = 7
WARM_UP_HEARTBEATS = 6
URL = "api/v1/text-completion"
BODY = {"system": "Be brief.", "prompt": "3", "streaming": True}
_SHIPPED = {str(path): module for module, path in FILES.items()}
_PROVIDER = CountingLlm.generate_content_stream.__code__


@dataclass(frozen=True)
class Walk:
    """The module of each call, of one trace; `files` are in all traces."""

    calls: list[str]
    files: list[str]

    @property
    def changes(self) -> int:
        """How often a call is in another file than the one before."""
        return sum(one != other for one, other in pairwise(self.calls))


async def walk() -> tuple[Walk, Walk]:
    """What a streaming completion over REST calls: its request, then one chunk.

    Raises:
        RuntimeError: a trace has no beginning or no end, because the pipeline has changed and this file has not.
    """
    llm = CountingLlm()
    async with open_gateway(llm=llm, timing=QUICK) as opened:
        await asyncio.sleep(WARM_UP_HEARTBEATS * QUICK.interval)
        requests, chunks = zip(*[await _walk_once(opened) for _ in range(REQUESTS)], strict=True)
    return _common(requests), _common(chunks)


def _common(traces: tuple[list[str], ...]) -> Walk:
    """The shortest of the traces."""
    calls = min(traces, key=len)
    return Walk(calls, [module for module in dict.fromkeys(calls) if all(module in trace for trace in traces)])


async def _walk_once(opened: Opened) -> tuple[list[str], list[str]]:
    llm = opened.llm
    llm.step = asyncio.Semaphore(0)
    llm.started.clear()
    with _trace(_is_door, _is_provider) as request:
        posted = asyncio.create_task(opened.http.post(URL, json=BODY).__aenter__())
        await llm.started.wait()
    llm.step.release()
    response = await posted
    await response.content.readuntil(b"\n\n")
    with _trace(_is_provider, _is_socket) as chunk:
        llm.step.release()
        await response.content.readuntil(b"\n\n")
    llm.step.release()
    await response.read()
    return request, chunk


def _is_door(code: CodeType) -> bool:
    return _SHIPPED.get(code.co_filename, "").startswith("tg_gateway.")


def _is_provider(code: CodeType) -> bool:
    return code is _PROVIDER


def _is_socket(code: CodeType) -> bool:
    return code.co_name == "write" and Path(code.co_filename).name == "selector_events.py"


@contextmanager
def _trace(begins: Callable[[CodeType], bool], ends: Callable[[CodeType], bool]) -> Iterator[list[str]]:
    """Collect the module of each entry into shipped code, from one piece of code to another."""
    result: list[str] = []
    state = "before"

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal state
        if event != "call" or state == "after":
            return
        if state == "before" and begins(frame.f_code):
            state = "within"
        elif state == "within" and ends(frame.f_code):
            state = "after"
        if state == "within" and (module := _SHIPPED.get(frame.f_code.co_filename)):
            result.append(module)

    sys.setprofile(on_event)
    try:
        yield result
    finally:
        sys.setprofile(None)
    if state != "after":
        raise RuntimeError(f"the trace ends {state} the part of the pipeline that it should follow")
