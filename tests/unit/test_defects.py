"""A defect ends as the error of whoever waits for the work; what is none passes."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from tg_base.runtime import translate_defects
from tg_schema.errors import BusError, Internal

log = structlog.get_logger()


@pytest.mark.parametrize("defect", [ValueError("a secret"), StopIteration(), SystemExit(3), TimeoutError()])
def test_a_defect_is_logged_and_translated(defect: BaseException) -> None:
    with (
        capture_logs() as logs,
        pytest.raises(Internal, match="it failed") as raised,
        translate_defects(Internal, "it failed", "work.failed", log.bind(model="m")),
    ):
        raise defect
    assert logs == [{"event": "work.failed", "log_level": "error", "exc_info": True, "model": "m"}]
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("expected", [BusError("closed"), asyncio.CancelledError(), KeyboardInterrupt(), KeyError()])
def test_an_error_of_ours_and_a_cancellation_pass(expected: BaseException) -> None:
    with (
        capture_logs() as logs,
        pytest.raises(type(expected)) as raised,
        translate_defects(Internal, "it failed", "work.failed", log, known=(LookupError,)),
    ):
        raise expected
    assert (raised.value, logs) == (expected, [])
