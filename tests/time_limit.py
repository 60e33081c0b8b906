"""No test, and no run, outlasts its limit: a watchdog writes all stacks to stderr and ends the process.

Pytest-timeout's signal comes first: it raises in the main thread, so that the other tests go on. It cannot end a call
into C that does not look for signals, a test that swallows what is raised, or a thread that the interpreter waits for
when all tests are done. The watchdog can: it is a thread of the interpreter's own that needs none of its locks.
"""

import faulthandler
import os
import time
from collections.abc import Generator

import pytest

GRACE_SECONDS = 30.0
"""What a test gets beyond its limit to end by itself, once the signal has come."""
EXIT_SECONDS = 120.0
"""What the interpreter gets to end after the last test."""


class TimeLimit:
    """Register it with pytest to arm the watchdog. A limit of 0 is none.

    Args:
        config: where pytest-timeout's limit stands, and the stderr that is not captured yet.
        grace: seconds beyond it.
        exiting: seconds for the interpreter's end.
    """

    def __init__(self, config: pytest.Config, grace: float = GRACE_SECONDS, exiting: float = EXIT_SECONDS) -> None:
        self._limit = float(config.getoption("timeout") or config.getini("timeout") or 0)
        self._grace = grace
        self._exiting = exiting
        self._stderr = os.dup(2)
        self._due: float | None = None
        # One of several processes of a run waits for the others when it has no more tests; the run itself has a limit.
        self._ends_run = not hasattr(config, "workerinput")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("timeout")
        limit = float(marker.args[0]) if marker is not None and marker.args else self._limit
        self._due = time.monotonic() + limit + self._grace if limit else None
        self._arm()
        try:
            return (yield)
        finally:
            self._due = None
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Pytest's own plugin has just disarmed what a failed test's teardown needs as well."""
        self._arm()

    def pytest_unconfigure(self) -> None:
        """Whatever still runs when all tests are done may not keep the interpreter for ever."""
        if self._ends_run:
            faulthandler.dump_traceback_later(self._exiting, exit=True, file=self._stderr)

    def _arm(self) -> None:
        if self._due is not None:
            left = max(self._due - time.monotonic(), 0.1)
            faulthandler.dump_traceback_later(left, exit=True, file=self._stderr)
