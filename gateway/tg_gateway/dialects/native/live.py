"""GET /api/v1/live -> what all gateways do now, once or as it changes; POST to a stream -> it is stopped."""

from typing import Final

from tg_gateway.dialects import EVENTS, Answer, Call, StreamedAnswer, Writer
from tg_schema import encode
from tg_schema.live import StoppedStream

LIVE: Final = "live"
"""The operation that shows what gateways do."""
STOP: Final = "stop"
"""The operation that stops a stream."""


async def show_live(call: Call) -> Answer | StreamedAnswer:
    """The document, or with `Accept: text/event-stream` its events.

    Raises:
        TgError: as `LiveFigures`.
    """
    if EVENTS in call.headers.get("Accept", ""):
        return StreamedAnswer(call.live.follow(call.sees), EVENTS, Writer.headers, Writer.keep_alive)
    return Answer(await call.live.show(call.sees), headers=Writer.headers)


async def stop_stream(call: Call) -> Answer:
    """Stop the stream that the path names.

    Raises:
        NotFound: as `LiveFigures.stop`.
    """
    await call.live.stop(call.path["stream"], call.sees)
    return Answer(encode(StoppedStream(call.path["stream"])))
