"""A call of the broker's client whose caller has left: how it ends later writes no traceback."""

import asyncio
import contextlib
import gc

from tg_base.bus.pulsar.client import in_time
from tg_schema.errors import BusError


async def test_what_fails_after_its_caller_has_left_is_not_reported() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    call: asyncio.Future[None] = loop.create_future()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_time(call)
    call.set_exception(BusError("the broker did not answer in time; try again"))
    del call
    await asyncio.sleep(0)
    gc.collect()
    assert not reported
