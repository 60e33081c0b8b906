"""An OpenTelemetry collector at the edge of the world: takes OTLP over HTTP on a loopback port, and keeps the spans."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tests.fakes.serve_routes import serve_routes


@dataclass
class Received:
    """One span, with its ids in hexadecimal digits."""

    name: str
    kind: str
    trace: str
    id: str
    above: str
    begin: int
    end: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class OtlpCollector:
    """What it has got.

    Attributes:
        url: its base URL.
        spans: in the order of their arrival.
        resources: the attributes of the processes.
        bodies: the requests as they came.
        open: while it is not set, requests wait.
        asked: set with the first request.
    """

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def running(cls, tls: ssl.SSLContext | None = None, *, hangs: bool = False) -> AsyncIterator["OtlpCollector"]:
        """Listen while the block runs."""
        collector = cls()
        if not hangs:
            collector.open.set()
        async with serve_routes({"POST /v1/traces": collector._take}, tls=tls) as collector.url:
            yield collector

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.set()
        await self.open.wait()
        self.bodies.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({each.key: _value(each.value) for each in group.resource.attributes})
            self.spans += [_read(span) for scope in group.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    def named(self, name: str) -> list[Received]:
        """The spans of that name, from the one that began first."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.begin)

    def one(self, name: str) -> Received:
        """The only span of that name."""
        (found,) = self.named(name)
        return found


def _read(span: WireSpan) -> Received:
    return Received(
        span.name,
        WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == 2,
        {each.key: _value(each.value) for each in span.attributes},
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind or "string_value")
