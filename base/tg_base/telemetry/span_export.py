"""[traces] -> the export of this process's spans, while it serves."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any

from tg_base.runtime import start_daemon_thread
from tg_base.telemetry.ended_span import record_spans
from tg_schema.errors import Unavailable

CLOSE_SECONDS = 3.0
PATH = "/v1/traces"
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_ABSENT = 'traces need a package that is not installed; run: pip install "tokengrid-serve[traces]"'


@asynccontextmanager
async def export_spans(
    endpoint: str | None, share: float, *, close_seconds: float = CLOSE_SECONDS
) -> AsyncIterator[None]:
    """Export spans until the block is left; without an endpoint, export nothing.

    Args:
        endpoint: the collector's URL, without or with `PATH`; None = the environment's, as OpenTelemetry names it.
            OpenTelemetry's other variables apply as well, for instance for headers.
        share: which share of the traces that begin in this process is recorded.
        close_seconds: how long the end waits until the last spans are sent; the rest is lost.

    Raises:
        Unavailable: the SDK is not installed.
    """
    named = endpoint or any(os.environ.get(name) for name in _VARIABLES)
    if not named or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    url = endpoint and f"{endpoint.rstrip('/').removesuffix(PATH)}{PATH}"
    export = await start_daemon_thread(lambda: _open(url), "open traces")
    record_spans(export.take, share)
    try:
        yield
    finally:
        record_spans(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(close_seconds):
                await start_daemon_thread(export.close, "close traces")


def _open(url: str | None) -> Any:
    try:
        module = import_module("tg_base.telemetry.otlp")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise Unavailable(_ABSENT) from None
    return module.OtlpExport(url)
