"""Collectors that hang, that nobody trusts, and what that costs: nothing but the spans."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.otlp_collector import OtlpCollector
from tests.flow.open_gateway import open_gateway
from tests.flow.test_traces import DOOR, post
from tests.until import until
from tg_base.telemetry import EndedSpan, Span, export_spans, record_spans, trace
from tg_base.telemetry.otlp import BATCH_SPANS, MAX_WAITING_SPANS, OtlpExport

CLOSE_SECONDS = 0.2
"""A collector that hangs takes nothing at the end either."""


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends spans, and gives them up, sooner than after seconds."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")


def exported_to(collector: OtlpCollector) -> AbstractAsyncContextManager[None]:
    return export_spans(collector.url, 1.0, close_seconds=CLOSE_SECONDS)


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("tg_spans_total", {"outcome": outcome}) or 0.0


def has_failed(spans: float) -> bool:
    return counted("failed") >= spans


def events(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["event"].startswith("traces.")]


async def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(at_once: None, logs: list[Any]) -> None:
    failed = counted("failed")
    async with OtlpCollector.running(hangs=True) as collector:
        async with (
            asyncio.timeout(60),
            exported_to(collector),
            open_gateway() as opened,
        ):
            await post(opened.http)
            await collector.asked.wait()
            await post(opened.http)
            await until(lambda: counted("failed") >= failed + 2)
            await post(opened.http)
        assert collector.spans == []
    assert events(logs) == ["traces.failed"]


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted(at_once: None) -> None:
    dropped, more = counted("dropped"), 1000
    record_spans(lambda ended: None)
    async with OtlpCollector.running(hangs=True) as collector:
        export = await asyncio.to_thread(OtlpExport, f"{collector.url}/v1/traces")
        span = Span.at_door("r", None)
        record_spans(None)
        for _ in range(MAX_WAITING_SPANS + more):
            export.take(EndedSpan(span, "x", "internal", {}, "", span.began))
        assert counted("dropped") - dropped == more
        collector.open.set()
        await asyncio.to_thread(export.close)
        # What was given up before is not sent again.
        assert MAX_WAITING_SPANS - BATCH_SPANS <= len(collector.spans) <= MAX_WAITING_SPANS


async def test_a_collector_that_nobody_trusts_gets_nothing_and_one_line_says_so(
    at_once: None, logs: list[Any], tmp_path: Path
) -> None:
    failed, (tls, _) = counted("failed"), loopback_tls(tmp_path)
    async with (
        OtlpCollector.running(tls) as collector,
        exported_to(collector),
        open_gateway() as opened,
    ):
        for sent in (4, 8):
            await post(opened.http)
            await until(partial(has_failed, failed + sent))
    assert (events(logs), collector.spans) == (["traces.failed"], [])
    assert not any("CERTIFICATE_VERIFY_FAILED" in str(line) for line in logs)


async def test_a_collector_that_comes_back_gets_what_follows(at_once: None, logs: list[Any]) -> None:
    failed, exported = counted("failed"), counted("exported")
    async with OtlpCollector.running(hangs=True) as collector:
        async with exported_to(collector), open_gateway() as opened:
            await post(opened.http)
            await until(lambda: counted("failed") >= failed + 4)
            collector.open.set()
            await post(opened.http)
            await until(lambda: counted("exported") >= exported + 4)
        assert collector.named(DOOR)
    assert events(logs) == ["traces.failed", "traces.resumed"]


@pytest.mark.parametrize("disabled", [False, True])
async def test_the_environment_may_name_the_collector(*, disabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with OtlpCollector.running() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
        if disabled:
            monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        async with export_spans(None, 1.0), open_gateway() as opened:
            await post(opened.http)
    assert [resource["service.name"] for resource in collector.resources[:1]] == ([] if disabled else ["ours"])


async def test_without_a_collector_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    async with export_spans(None, 1.0):
        assert trace.share is None
        assert Span.at_door("r", None).began == 0
