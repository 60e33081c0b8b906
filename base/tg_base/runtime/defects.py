"""Defect, ours or a third party's -> TgError: the log gets the traceback, and who waits for the work a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.typing import FilteringBoundLogger

from tg_schema import TgError


@contextmanager
def translate_defects(
    kind: type[TgError],
    message: str,
    event: str,
    log: FilteringBoundLogger,
    *,
    known: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raise an error of ours in place of any exception of the block but a TgError or a cancellation.

    Put it around work that must not take its surroundings with it: a task, a thread, or what somebody else has written.
    An attempt to end the process (`SystemExit`) is a defect too.

    Args:
        kind: what the work ends with.
        message: its sentence, which is shown to clients.
        event: the name of the line in the log that has the traceback.
        log: writes that line; bind to it what the line should say.
        known: other exceptions that are no defects, and pass.
    """
    passing: tuple[type[Exception], ...] = (TgError, *known)
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit):
        log.exception(event)
        # Without its cause: a foreign exception may hold a key or a URL, and only the log hides those.
        raise kind(message) from None
