"""PickOptions -> the endpoint picker of an Envoy: run, or checked; imported as it is needed."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tg_base.server import serve_process
from tg_base.telemetry import configure_log
from tg_schema.errors import BadRequest
from tg_serve.options import PickOptions

_NO_PICKER = 'the picker is not installed; run: pip install "tokengrid-serve[picker]"'


def pick(order: PickOptions, ready: Callable[[str], None]) -> None:
    """Pick endpoints for Envoy until a signal ends it; `ready` is called with one line when it listens.

    Raises:
        TgError: it cannot run; the message says what to do.
    """
    serve_process(_call(order, "picker_process", "run_picker"), ready)


def check_pick(order: PickOptions) -> tuple[str, list[str]]:
    """Start without listening: ping the bus, and resolve the servers' host names.

    Returns:
        A description of what would be served; and all errors, each with its file and line.
    """
    result: tuple[str, list[str]] = asyncio.run(_call(order, "pick_check", "check_picker"))
    return result


def _call(order: PickOptions, module: str, name: str) -> Any:
    configure_log(order.log_form, order.log_level)
    try:
        called = getattr(import_module(f"tg_picker.extproc.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tg_") and error.name != "tg_picker":
            raise
        raise BadRequest(_NO_PICKER) from None
    return called(order.file, order.listen, order.http, order.bus)
