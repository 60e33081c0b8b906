"""Functions for a worker process to call: each does one thing that a call may do."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from tg_base.runtime import ask_caller
from tg_gateway.dialects import InvalidParameter


def identify(*_: object) -> int:
    """The process in which this runs."""
    return os.getpid()


def print_and_log(text: str) -> int:
    """Where it could disturb what is said on the output."""
    print(text, flush=True)
    structlog.get_logger().info("worker.said", text=text)
    return len(text)


def refuse(param: str) -> None:
    """An error of ours, with attributes that its arguments do not have."""
    raise InvalidParameter("it is wrong", param, "invalid_value")


def fail() -> None:
    """A defect."""
    Path("/no/such/file").read_bytes()


def die() -> None:
    """As if the system had no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def ask_twice(first: str, second: str) -> tuple[str, str, int]:
    """What the caller answers, and where this runs."""
    return ask_caller(first), ask_caller(second), os.getpid()


def nest(depth: int) -> list[Any]:
    """What is read of a client's JSON, nested as deep."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def make_function() -> Callable[[], None]:
    """What cannot be pickled."""
    return lambda: None


def outlive(file: Path) -> None:
    """Make a file, and return once the process that has started this one is gone."""
    parent = os.getppid()
    file.touch()
    while os.getppid() == parent:
        time.sleep(0.01)
