"""Spans of one request, in all hops, as a collector gets them; and collectors that hang, or that nobody trusts."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.fakes.loopback_tls import loopback_tls
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.openai_server import OpenAiServer, Script
from tests.fakes.otlp_collector import OtlpCollector, Received
from tests.flow.agent_turns import DONE
from tests.flow.open_gateway import CONFIG, QUICK, TEXTS, open_gateway
from tests.flow.openai_asking import MODEL
from tests.flow.test_one_request import TURNS, agent
from tests.until import until
from tg_base import telemetry
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.server import Processor
from tg_base.telemetry import EndedSpan, Span, record_spans, span_names, trace
from tg_base.telemetry.otlp import BATCH_SPANS, MAX_WAITING_SPANS, OtlpExport
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TextCompletionRequest

export_spans = partial(telemetry.export_spans, close_seconds=30.0)
"""By default, spans that are not sent within three seconds are lost, and a loaded machine may take longer."""

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT = "00f067aa0ba902b7"
SAMPLED = {"X-Request-Id": "r-1", "traceparent": f"00-{TRACE}-{CLIENT}-01"}
ASKED = {"model": "counting", "messages": [{"role": "user", "content": "3"}], "stream": True, "max_tokens": 50}
DOOR = "POST /v1/chat/completions"


async def post(http: ClientSession, headers: dict[str, str] | None = None) -> None:
    async with http.post("v1/chat/completions", json=ASKED, headers=headers) as response:
        assert response.status == 200
        await response.read()


def of_kind(spans: list[Received], kind: str) -> set[str]:
    return {span.name for span in spans if span.kind == kind}


async def test_a_request_at_a_door_is_one_trace_down_to_the_call_of_its_model() -> None:
    async with OtlpCollector.running() as collector:
        async with export_spans(collector.url, 1.0), open_gateway() as opened:
            await post(opened.http, SAMPLED)
        door, ask, queue = (collector.one(name) for name in (DOOR, "ask text-completion", "queue"))
        call = collector.one("chat counting")
    assert len(collector.spans) == 4
    assert {span.trace for span in collector.spans} == {TRACE}
    assert [door.above, ask.above, queue.above, call.above] == [CLIENT, door.id, ask.id, ask.id]
    assert [span.kind for span in (door, ask, queue, call)] == ["server", "client", "internal", "client"]
    assert door.begin <= ask.begin <= call.begin <= call.end <= door.end
    assert queue.end <= call.begin
    assert not any(span.failed for span in collector.spans)
    assert {resource["service.name"] for resource in collector.resources} == {"tokengrid"}
    wanted = {
        span_names.STATUS: 200,
        span_names.METHOD: "POST",
        span_names.REQUEST: "r-1",
        span_names.FLOW: "default",
    }
    assert wanted.items() <= door.attributes.items()
    first = call.attributes.pop(span_names.TIME_TO_FIRST_CHUNK)
    assert 0 <= first <= (call.end - call.begin) / 1e9
    assert call.attributes == {
        span_names.OPERATION: "chat",
        span_names.PROVIDER: "CountingLlm",
        span_names.REQUEST_MODEL: "counting",
        span_names.MODEL: "counting",
        span_names.STREAM: True,
        span_names.MAX_TOKENS: 50,
        span_names.INPUT_TOKENS: 7,
        span_names.OUTPUT_TOKENS: 3,
        span_names.FINISH_REASONS: ["stop"],
    }


async def test_each_hop_of_an_agent_is_below_the_one_that_asked(tmp_path: Path) -> None:
    async with OtlpCollector.running() as collector:
        async with (
            export_spans(collector.url, 1.0),
            agent(tmp_path) as (url, _),
            ClientSession(url) as http,
            http.post("/api/v1/agent", json={"question": "the-question"}, headers=SAMPLED) as response,
        ):
            assert response.status == 200
        spans = {span.id: span for span in collector.spans}
        names = Counter(span.name for span in collector.spans)
    model = next(name for name in names if name.startswith("chat "))
    assert names == {
        "POST /api/v1/agent": 1,
        "ask agent": 1,
        "invoke_agent default": 1,
        "execute_tool greet": 1,
        "execute_tool logs": 1,
        "ask prompt": 1,
        "prompt default": 1,
        "ask text-completion": len(TURNS),
        model: len(TURNS),
        "queue": len(TURNS) + 2,
    }
    assert {span.trace for span in collector.spans} == {TRACE}

    def above(span: Received) -> str:
        return spans[span.above].name if span.above in spans else ""

    found = {(span.name, above(span)) for span in collector.spans if span.name != "queue"}
    assert found == {
        ("POST /api/v1/agent", ""),
        ("ask agent", "POST /api/v1/agent"),
        ("invoke_agent default", "ask agent"),
        ("execute_tool greet", "invoke_agent default"),
        ("execute_tool logs", "invoke_agent default"),
        ("ask prompt", "execute_tool greet"),
        ("prompt default", "ask prompt"),
        ("ask text-completion", "prompt default"),
        ("ask text-completion", "invoke_agent default"),
        (model, "ask text-completion"),
    }
    tool = collector.one("execute_tool greet").attributes
    assert tool == {span_names.OPERATION: "execute_tool", span_names.TOOL_NAME: "greet"}
    invoked = collector.one("invoke_agent default").attributes
    assert (invoked[span_names.OPERATION], invoked[span_names.AGENT_NAME]) == ("invoke_agent", "default")
    # Neither what was asked nor what was answered, nor the arguments of a tool.
    said = {"the-question", "Greet", "Ann", *("".join(turn) for turn in (DONE,))}
    body = b"".join(collector.bodies).decode(errors="replace")
    assert [word for word in said if word in body] == []


async def test_each_attempt_at_a_provider_is_a_span_whose_id_the_provider_gets(openai_server: OpenAiServer) -> None:
    options = OpenAiOptions(base_url=openai_server.url, key_variable="", upstream_model=MODEL, tries=2)
    openai_server.play(Script.refuse(429, "rate_limit_exceeded", retry_after="0"), Script())
    async with OtlpCollector.running() as collector:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(export_spans(collector.url, 1.0))
            provider = await OpenAiCompatible.open("counting", options)
            opened = await stack.enter_async_context(open_gateway(instead=provider))
            await post(opened.http, SAMPLED)
        first, second = collector.named(f"chat {MODEL}")
        ask = collector.one("ask text-completion")
    assert (first.failed, first.attributes["error.type"], second.failed) == (True, "rate-limited", False)
    assert first.above == second.above == ask.id
    sent = [exchange.headers for exchange in openai_server.exchanges]
    assert [each["traceparent"] for each in sent] == [f"00-{TRACE}-{span.id}-01" for span in (first, second)]
    assert {each["x-request-id"] for each in sent} == {"r-1"}


@pytest.mark.parametrize(
    ("share", "flags", "recorded"), [(1.0, "00", 0), (0.0, "01", 4), (0.0, None, 0), (1.0, None, 4)]
)
async def test_what_is_recorded(share: float, flags: str | None, recorded: int) -> None:
    """A caller's flag decides; where there is none, the share."""
    headers = None if flags is None else {"traceparent": f"00-{TRACE}-{CLIENT}-{flags}"}
    async with OtlpCollector.running() as collector, export_spans(collector.url, share), open_gateway() as opened:
        await post(opened.http, headers)
    assert len(collector.spans) == recorded


async def test_the_share_of_new_traces() -> None:
    async with OtlpCollector.running() as collector, export_spans(collector.url, 0.5), open_gateway() as opened:
        for _ in range(64):
            await post(opened.http)
    assert 8 <= len(collector.named(DOOR)) <= 56
    assert len(collector.spans) == 4 * len(collector.named(DOOR))


async def test_a_request_that_is_refused_is_no_failure_of_ours() -> None:
    async with OtlpCollector.running() as collector, export_spans(collector.url, 1.0), open_gateway() as opened:
        assert (await opened.http.get("health")).status == 200
        status = (await opened.http.post("v1/chat/completions", json={"model": "none"})).status
    door = collector.one(DOOR)
    assert (door.failed, door.attributes[span_names.STATUS]) == (False, status)
    assert re.fullmatch(r"bad-request|not-found", door.attributes["error.type"])
    # Probes come every second.
    assert len(collector.spans) == 1


async def test_both_attempts_are_below_the_request_whose_first_processor_was_killed() -> None:
    bus = MemoryBus()
    mortal, held = MortalBus(bus), CountingLlm()
    held.step = asyncio.Semaphore(0)
    async with OtlpCollector.running() as collector:
        async with (
            export_spans(collector.url, 1.0),
            Requestor(MortalBus(bus), CONFIG.topics, timing=QUICK) as requestor,
            Processor(mortal, CONFIG.topics, held, TEXTS, timing=QUICK, grace=0.05),
            requestor.stream(TEXTS[0], TextCompletionRequest(prompt="0"), timeout=60) as responses,
        ):
            await held.started.wait()
            mortal.kill()
            second = Processor(MortalBus(bus), CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK, grace=0.05)
            async with second:
                assert [record.last async for record in responses] == [True]
        ask, waits = collector.one("ask text-completion"), collector.named("queue")
    assert not ask.failed
    assert ask.attributes[span_names.ATTEMPT] >= 2
    assert ask.attributes[span_names.PROCESSOR] == second.name
    assert len({wait.attributes[span_names.PROCESSOR] for wait in waits}) == 2
    assert {span.above for span in collector.spans if span is not ask} == {ask.id}


async def test_a_response_in_the_background_is_below_the_request_that_began_it() -> None:
    llm = SteppedLlm()
    asked = {"model": "counting", "input": "1", "background": True}
    async with OtlpCollector.running() as collector:
        async with export_spans(collector.url, 1.0), open_gateway(llm=llm) as opened:
            async with opened.http.post("v1/responses", json=asked, headers=SAMPLED) as response:
                name = (await response.json())["id"]
            llm.step.release()
            async with asyncio.timeout(20):
                while (await (await opened.http.get(f"v1/responses/{name}")).json())["status"] != "completed":
                    pass
        door, job, ask = (collector.one(name) for name in ("POST /v1/responses", "background", "ask text-completion"))
    assert [door.above, job.above, ask.above] == [CLIENT, door.id, job.id]
    assert door.end < job.end
    assert (job.kind, job.attributes[span_names.STATUS]) == ("internal", 200)


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
