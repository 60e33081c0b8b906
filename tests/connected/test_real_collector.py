"""Traces of processes over a real broker, in a real OpenTelemetry collector: a kill, a hang, a wrong certificate."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from bench.child import cpu_of
from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import PROMPT_TOKENS, LiveOpenAi
from tests.fakes.loopback_tls import loopback_tls
from tests.real_collector import RealCollector
from tests.suspended import suspended
from tests.until import until
from tg_base.telemetry import span_names
from tg_base.telemetry.otlp import MAX_WAITING_SPANS

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GATEWAY_SPANS = 2
"""Of one request."""
MAX_MIB = 32


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes send spans at once."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    # The SDK's HTTP client prefers them to the certificate that is named to it.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


async def ask(http: aiohttp.ClientSession, line: Pipeline) -> None:
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "X-Request-Id": "r-1"}
    path = f"/api/v1/flow/{line.flow}/service/text-completion"
    async with http.post(path, json={"prompt": "Hi."}, headers=headers) as response:
        assert response.status == 200, await response.text()


def resident_mib(part: Part) -> float:
    status = Path(f"/proc/{part.process.pid}/status").read_text("utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


async def test_one_trace_of_a_request_whose_first_processor_was_killed(
    line: Pipeline, live_model: LiveOpenAi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time_ns()
    live_model.speak.clear()
    live_model.finish.set()
    async with RealCollector.running(tmp_path) as collector, AsyncExitStack() as stack:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        gateway, first = await line.start("gateway"), await line.start("text-completion")
        http = await stack.enter_async_context(aiohttp.ClientSession(gateway.url))
        asking = asyncio.create_task(ask(http, line))
        await live_model.until(lambda: len(live_model.generations) == 1, 60)
        await line.start("text-completion")
        first.process.kill()
        await live_model.until(lambda: len(live_model.generations) == 2, 60)
        live_model.speak.set()
        await asking
        await until(lambda: {"POST", "chat"} <= {span.name.partition(" ")[0] for span in collector.spans})
        spans = {span.name.partition(" ")[0]: span for span in sorted(collector.spans, key=lambda span: span.end)}
    door, asked, queue, call = (spans[name] for name in ("POST", "ask", "queue", "chat"))
    # The first processor may have told of its wait; its call ended with it.
    assert {span.above for span in collector.named("queue")} == {asked.id}
    assert {span.trace for span in collector.spans} == {TRACE}
    assert (door.above, asked.above, queue.above, call.above) == (CLIENT, door.id, asked.id, asked.id)
    assert [span.kind for span in (door, asked, queue, call)] == ["server", "client", "internal", "client"]
    assert before <= door.begin <= asked.begin <= call.begin <= call.end <= asked.end <= door.end <= time.time_ns()
    assert asked.begin <= queue.begin <= queue.end <= call.begin
    assert not any(span.failed for span in collector.spans)
    assert door.attributes[span_names.REQUEST] == "r-1"
    assert (asked.attributes[span_names.FLOW], asked.attributes[span_names.ATTEMPT]) == (line.flow, 2)
    # The one names the process, the other one its processor.
    assert queue.attributes[span_names.PROCESSOR].startswith(f"{asked.attributes[span_names.PROCESSOR]}.")
    wanted = {span_names.INPUT_TOKENS: PROMPT_TOKENS, span_names.OUTPUT_TOKENS: 2, span_names.FINISH_REASONS: ["stop"]}
    assert wanted.items() <= call.attributes.items()


async def test_a_collector_that_hangs_costs_nothing_and_gets_what_follows(
    line: Pipeline, live_model: LiveOpenAi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_model.finish.set()
    requests = MAX_WAITING_SPANS // GATEWAY_SPANS + 100
    async with RealCollector.running(tmp_path) as collector, AsyncExitStack() as stack:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        gateway, _ = await line.start("gateway"), await line.start("text-completion")
        http = await stack.enter_async_context(aiohttp.ClientSession(gateway.url))

        async def ask_all() -> float:
            """Seconds of the gateway's CPU."""
            begun = cpu_of(gateway.process.pid) or 0.0
            for _ in range(requests // 20):
                await asyncio.gather(*(ask(http, line) for _ in range(20)))
            return (cpu_of(gateway.process.pid) or 0.0) - begun

        well = await ask_all()
        await until(lambda: len(collector.spans) >= 4 * 20 * (requests // 20))
        resident = resident_mib(gateway)
        with suspended(collector.process.pid):
            hung = await ask_all()
            assert resident_mib(gateway) - resident <= MAX_MIB
            said = gateway.said.read_text("utf-8")
            assert said.count("traces.failed") == 1
        # It neither encodes nor sends what it drops.
        assert hung <= 1.25 * well, (hung, well)
        known = len(collector.spans)
        await ask(http, line)
        await until(lambda: len(collector.spans) > known)


async def test_a_certificate_that_is_not_trusted_and_one_that_is(
    line: Pipeline, live_model: LiveOpenAi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_model.finish.set()
    _, certificate = loopback_tls(tmp_path)
    async with RealCollector.running(tmp_path, certificate) as collector, AsyncExitStack() as stack:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        wary = await line.start("gateway")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificate))
        trusting, _ = await line.start("gateway"), await line.start("text-completion")
        http = await stack.enter_async_context(aiohttp.ClientSession(wary.url))
        await ask(http, line)
        await until(lambda: "traces.failed" in wary.said.read_text("utf-8"))
        await until(lambda: len(collector.spans) == GATEWAY_SPANS)
        # The processor's own arrive, the gateway's do not.
        assert {span.name.partition(" ")[0] for span in collector.spans} == {"queue", "chat"}
        http = await stack.enter_async_context(aiohttp.ClientSession(trusting.url))
        await ask(http, line)
        await until(lambda: len(collector.spans) == 3 * GATEWAY_SPANS)
        assert "CERTIFICATE_VERIFY_FAILED" not in wary.said.read_text("utf-8")
