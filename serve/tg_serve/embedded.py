"""No gateway -> an embedded one: memory bus, demo model, prompts and the real gateway, on a free loopback port."""

from contextlib import AbstractAsyncContextManager

from tg_serve.options import ServeOptions
from tg_serve.structlog_import import import_structlog

import_structlog()
from tg_serve.launcher import launch_beside, set_up  # noqa: E402 - it imports every module that logs

DEMO_MODEL_NOTICE = "a tiny demo model (2 million parameters: it streams, but knows little)"
_ORDER = ServeOptions(bus="memory://", host="127.0.0.1", port=0, drain=1.0, log_level="warning")


def embedded_gateway() -> AbstractAsyncContextManager[str]:
    """Runs a gateway with the built-in configuration while the block runs, and yields its URL.

    Raises:
        TgError: it cannot run; the message says what to do.
    """
    set_up(_ORDER)
    return launch_beside(_ORDER)
