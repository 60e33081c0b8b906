"""Ended spans -> an OpenTelemetry collector, by OTLP over HTTP: the only import of the SDK.

The SDK encodes and sends in a thread of its own. Our spans have ids already, which travel in `traceparent`; so they go
to the SDK's processor once they have ended, and not through its tracer.
"""

import logging
from collections.abc import Sequence
from importlib.metadata import version

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from typing_extensions import override

from tg_base.telemetry.ended_span import EndedSpan
from tg_base.telemetry.metrics import SPANS
from tg_base.telemetry.span_names import ERROR_TYPE, SCHEMA_URL, SERVICE_NAME
from tg_schema.errors import Cancelled

log = structlog.get_logger()

MAX_WAITING_SPANS = 2048
"""Spans that wait for the collector, or are just being sent; more are dropped. One takes about 2 KiB."""
BATCH_SPANS = 512
"""Spans of one request to the collector."""
MAX_CHARACTERS = 256
"""Characters of an attribute: a provider's name of its model may be of any length."""
_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_FAILED = Status(StatusCode.ERROR)
_UNSET = Status(StatusCode.UNSET)


class OtlpExport:
    """Everything may be called on the event loop except the constructor and `close`, which block.

    Args:
        endpoint: the URL of the collector's traces; None = as OpenTelemetry's variables of the environment say.
    """

    def __init__(self, endpoint: str | None) -> None:
        # The SDK's log lines quote foreign errors, and repeat; our line says once that the collector accepts nothing.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = _CountingExporter(OTLPSpanExporter(endpoint=endpoint))
        self._processor: SpanProcessor = BatchSpanProcessor(
            self._exporter, max_queue_size=MAX_WAITING_SPANS, max_export_batch_size=BATCH_SPANS
        )
        self._resource = Resource.create({SERVICE_NAME: "tokengrid"}).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("tokengrid", version("tokengrid-base"), SCHEMA_URL)
        self._taken = 0

    def take(self, ended: EndedSpan) -> None:
        """Queue a span; it is dropped if too many wait."""
        # Two counters, each of one thread, need no lock.
        if self._taken - self._exporter.done >= MAX_WAITING_SPANS:
            SPANS.labels("dropped").inc()
            return
        self._taken += 1
        self._processor.on_end(self._convert(ended))

    def close(self) -> None:
        """Send the waiting spans, which may take long."""
        self._processor.shutdown()

    def _convert(self, ended: EndedSpan) -> ReadableSpan:
        span = ended.span
        trace_id, flags = int(span.traceparent[3:35], 16), TraceFlags(int(span.traceparent[53:], 16))
        attributes = {
            name: value[:MAX_CHARACTERS] if isinstance(value, str) else value
            for name, value in ended.attributes.items()
            if value is not None
        }
        if ended.error:
            attributes[ERROR_TYPE] = ended.error
        return ReadableSpan(
            ended.name,
            SpanContext(trace_id, int(span.traceparent[36:52], 16), is_remote=False, trace_flags=flags),
            SpanContext(trace_id, int(span.above, 16), is_remote=True, trace_flags=flags) if span.above else None,
            self._resource,
            attributes,
            kind=_KINDS[ended.kind],
            # A reader that has left is no failure of the work.
            status=_FAILED if ended.error and ended.error != Cancelled.type else _UNSET,
            start_time=span.began,
            end_time=ended.end,
            instrumentation_scope=self._scope,
        )


class _CountingExporter(SpanExporter):
    """Counts the spans that have left the queue, and logs when the collector begins or ends to refuse spans.

    Attributes:
        done: spans that were sent, or given up.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False
        self.done = 0

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self.done += len(spans)
            self._note(len(spans), failed=result is not SpanExportResult.SUCCESS)
        return result

    def _note(self, count: int, *, failed: bool) -> None:
        SPANS.labels("failed" if failed else "exported").inc(count)
        if failed and not self._failing:
            advice = "check traces.endpoint, the collector and its certificate; spans are dropped until it takes them"
            log.warning("traces.failed", advice=advice)
        elif self._failing and not failed:
            log.info("traces.resumed")
        self._failing = failed

    @override
    def shutdown(self) -> None:
        self._exporter.shutdown()
