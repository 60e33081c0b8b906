"""Defect, ours or a third party's -> TgError: the log gets the traceback, and the caller an error message."""

from contextlib import AbstractContextManager
from types import TracebackType

from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from tg_schema import TgError


class DefectTranslation(AbstractContextManager[object]):
    """The context manager that `translate_defects` returns.

    It keeps nothing of a block, so one may be entered again and again.
    """

    # No generator: each request passes several of these, and a generator costs three times as much.
    __slots__ = ("_event", "_kind", "_log", "_message", "_passing")

    def __init__(
        self,
        kind: type[TgError],
        message: str,
        event: str,
        log: FilteringBoundLogger,
        passing: tuple[type[Exception], ...],
    ) -> None:
        self._kind = kind
        self._message = message
        self._event = event
        self._log = log
        self._passing = passing

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None or isinstance(error, self._passing) or not isinstance(error, Exception | SystemExit):
            return
        self._log.exception(self._event)
        # Drop the cause: a foreign exception may hold a key or a URL, which only the log hides.
        raise self._kind(self._message) from None


def translate_defects(
    kind: type[TgError],
    message: str,
    event: str,
    log: FilteringBoundLogger,
    *,
    known: tuple[type[Exception], ...] = (),
) -> DefectTranslation:
    """Raise an error of ours in place of any exception of the block, except a TgError or a cancellation.

    Put it around work whose failure must not end its surroundings: a task, a thread, or foreign code.
    An attempt to end the process (`SystemExit`) is a defect too.

    Args:
        kind: the error that is raised.
        message: the error's message, which clients see.
        event: the name of the line in the log that has the traceback.
        log: writes that line; bind the line's fields to it.
        known: further exceptions that are not defects; they pass unchanged.
    """
    return DefectTranslation(kind, message, event, log, (TgError, *known))
