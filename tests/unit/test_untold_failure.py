"""An answer to a plain peer that the bus does not take: its task ends in order, and the log says so."""

from collections.abc import Mapping

from structlog.testing import capture_logs
from typing_extensions import override

from tg_base.bus.memory import MemoryBus
from tg_base.server.responder import PlainResponder, send_failure
from tg_schema import TextCompletionResponse
from tg_schema.errors import BusError, Timeout


class _AbsentBus(MemoryBus):
    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        raise BusError("the broker did not answer in time; try again")


async def test_a_failure_that_nobody_can_be_told_is_logged() -> None:
    responder = PlainResponder(_AbsentBus(), "non-persistent://public/default/answers", "s")
    with capture_logs() as logs:
        await send_failure(responder, TextCompletionResponse.from_error(Timeout("too late").record))
    assert [(entry["event"], entry["error"]) for entry in logs] == [("response.error_not_sent", "bus")]
