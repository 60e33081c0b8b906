"""Calls of a function of ours -> a test: it sees them while the function itself runs, and puts nothing in its place."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any


@contextmanager
def observe_calls(function: Callable[..., Any], note: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Tell `note` the arguments of each call inside the block, in the thread and the task that makes it.

    Args:
        function: no coroutine function, whose code is entered each time that it goes on.
        note: told of this thread's calls, and of those of threads that begin inside the block.
    """
    assert isinstance(function, FunctionType)
    code = function.__code__

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            note(frame.f_locals)

    sys.setprofile(on_event)
    threading.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
