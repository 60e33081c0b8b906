"""Health, readiness, metrics, traces, and connections that never deliver a request."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from aiohttp import ClientSession
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.echo_prompt import EchoPrompt
from tests.fakes.refusing_bus import REFUSAL, RefusingBus
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, PROMPTS, QUICK, TEXTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_gateway.app import Gateway

COMPLETION = "/api/v1/text-completion"


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway(timing=QUICK) as opened:
        yield opened


async def test_health_and_ready(it: Opened) -> None:
    async with it.http.get("/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    assert await ready(it.http, 200) == {"ready": True, "missing": []}


async def ready(http: ClientSession, status: int) -> object:
    """What `/ready` says, as soon as it has the status."""
    async with asyncio.timeout(5):
        while True:
            async with http.get("/ready") as response:
                if response.status == status:
                    return await response.json()


async def test_ready_says_what_is_missing() -> None:
    bus = MemoryBus()
    async with (
        Requestor(bus, CONFIG.topics, timing=QUICK) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS + PROMPTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        nobody = [f"no live processor serves {service} of flow default" for service in ("text-completion", "prompt")]
        nobody[0] += f" (model {TEXTS[0].model})"
        assert await ready(http, 503) == {"ready": False, "missing": nobody}
        async with http.post(COMPLETION, json={"prompt": "1"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
        async with Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK):
            while await ready(http, 503) != {"ready": False, "missing": nobody[1:]}:
                pass
            async with Processor(bus, CONFIG.topics, EchoPrompt(), PROMPTS, timing=QUICK):
                await ready(http, 200)
        await ready(http, 503)
        await bus.aclose()
        while "the bus does not answer" not in str(await ready(http, 503)):
            pass
        async with http.get("/health") as response:
            assert response.status == 200
        async with http.post(COMPLETION, json={"prompt": "1"}) as response:
            assert response.status == 503


async def test_ready_follows_edits_before_the_gateway_listens_and_after() -> None:
    both = TEXTS + PROMPTS
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK),
        Requestor(bus, CONFIG.topics, timing=QUICK) as requestor,
    ):
        gateway = Gateway(ON_ANY_PORT, requestor, both)
        gateway.prepare(ON_ANY_PORT, TEXTS)()
        async with gateway, ClientSession(gateway.url) as http:
            await ready(http, 200)
            # It comes back, and the others can be asked until it is open. Then it is needed as before.
            gateway.prepare(ON_ANY_PORT, both)()
            async with http.get("/ready") as response:
                assert response.status == 200
            async with Processor(bus, CONFIG.topics, EchoPrompt(), PROMPTS, timing=QUICK):
                await until(lambda: bool(requestor.presence.serving(PROMPTS[0].request)))
                await ready(http, 200)
            await ready(http, 503)


async def test_ready_misses_nobody_who_need_not_live() -> None:
    """A plain peer announces nothing; and who has no file has asked for no prompts."""
    bus, plain = MemoryBus(), tuple(replace(route, plain=True) for route in PROMPTS)
    async with (
        Processor(bus, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK),
        Requestor(bus, CONFIG.topics, timing=QUICK, queues=(TEXTS[0].request,)) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS + plain) as one,
        Gateway(ON_ANY_PORT, requestor, TEXTS + PROMPTS, needed=TEXTS) as other,
        ClientSession(one.url) as ones,
        ClientSession(other.url) as others,
    ):
        for http in (ones, others):
            assert await ready(http, 200) == {"ready": True, "missing": []}


async def test_ready_says_what_the_bus_refuses() -> None:
    """Without it, it would only be said that nobody serves."""
    bus = RefusingBus(MemoryBus(), CONFIG.topics.announce)
    async with (
        Requestor(bus, CONFIG.topics, timing=QUICK, queues=(TEXTS[0].request,)) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        nobody = f"no live processor serves text-completion of flow default (model {TEXTS[0].model})"
        refused = f"processors cannot be asked what they serve: {REFUSAL}"
        await until(lambda: requestor.refusal)
        assert await ready(http, 503) == {"ready": False, "missing": [refused, nobody]}
        async with http.post(COMPLETION, json={"prompt": "1"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert f"none can be asked: {REFUSAL}" in await response.text()
        bus.refused.clear()
        # The question that is taken at last is that of a request.
        async with asyncio.timeout(5):
            while await ready(http, 503) != {"ready": False, "missing": [nobody]}:
                async with http.post(COMPLETION, json={"prompt": "1"}) as response:
                    assert response.status == 503


async def test_a_gateway_that_may_not_publish_is_not_ready() -> None:
    """Processors are heard, so that only a request would find out; it is ready as soon as the bus takes messages."""
    inner = MemoryBus()
    bus = RefusingBus(inner, CONFIG.topics.announce)
    async with (
        Processor(inner, CONFIG.topics, CountingLlm(), TEXTS, timing=QUICK),
        Requestor(bus, CONFIG.topics, timing=QUICK, queues=(TEXTS[0].request,)) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until(lambda: requestor.refusal and requestor.presence.serving(TEXTS[0].request))
        refused = f"the bus takes no messages of this gateway: {REFUSAL}"
        assert await ready(http, 503) == {"ready": False, "missing": [refused]}
        bus.refused.clear()
        assert await ready(http, 200) == {"ready": True, "missing": []}


async def test_metrics(it: Opened) -> None:
    async def metrics() -> dict[str, float]:
        async with it.http.get("/metrics") as response:
            assert response.content_type == "text/plain"
            lines = [line.rsplit(" ", 1) for line in (await response.text()).splitlines() if line[0] != "#"]
            return {name: float(value) for name, value in lines}

    it.llm.step = asyncio.Semaphore(1)
    before = await metrics()
    async with it.http.post(COMPLETION, json={"prompt": "2", "streaming": True}) as response:
        await response.content.readline()
        it.llm.step.release()
        await response.read()
    after = await metrics()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    service = '{service="text-completion"}'
    place = '{flow="default",model="counting",service="text-completion"}'
    published = (
        '{flow="default",gen_ai_operation_name="chat",gen_ai_provider_name="tokengrid",gen_ai_request_model="counting"}'
    )
    assert grown(f"tg_first_token_seconds_count{place}") == 1
    assert grown(f"tg_chunk_gap_seconds_count{place}") >= 1
    assert grown(f"tg_request_seconds_count{place}") == 1
    assert grown(f"tg_queue_wait_seconds_count{place}") == 1
    assert grown(f"gen_ai_server_time_to_first_token_seconds_count{published}") == 1
    assert grown(f"gen_ai_server_request_duration_seconds_count{published}") == 1
    assert grown('tg_provider_calls_total{model="counting",outcome="ok",status=""}') == 1
    assert grown(f"tg_overhead_seconds_count{service}") >= 2
    assert grown(f"tg_overhead_seconds_sum{service}") < 1
    assert grown('tg_gateway_requests_total{door="sse",outcome="ok",service="text-completion"}') == 1
    assert after["tg_gateway_streams"] == before["tg_gateway_streams"]


@pytest.mark.parametrize("given_trace", [True, False])
async def test_the_trace_goes_through(it: Opened, given_trace: bool) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01" if given_trace else "00-\xff-x-y"}
    async with it.bus.subscribe(TEXTS[0].request, "watcher") as requests:
        async with it.http.post(COMPLETION, json={"prompt": "1"}, headers=headers) as response:
            assert response.status == 200
        carried = (await anext(requests)).properties["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", carried)
    assert (carried.split("-")[1] == trace) is given_trace
    assert "00f067aa0ba902b7" not in carried


async def test_one_line_in_the_log_for_each_request() -> None:
    with capture_logs() as logs:
        async with open_gateway() as it:
            for body in ({"prompt": "1"}, {"prompt": "1", "streaming": True}, {}):
                async with it.http.post(COMPLETION, json=body, headers={"X-Request-Id": "r-1"}) as response:
                    await response.read()
    lines = [line for line in logs if line["event"] == "gateway.request"]
    assert [(line["door"], line["status"], line["outcome"]) for line in lines] == [
        ("http", 200, "ok"),
        ("sse", 200, "ok"),
        ("http", 400, "bad-request"),
    ]
    assert {line["request"] for line in lines} == {"r-1"}
    assert [line["records"] for line in lines] == [1, lines[1]["records"], 0]
    assert lines[0]["stream"] != lines[1]["stream"]


async def test_what_monitors_ask_for_is_told_at_debug_where_it_succeeds() -> None:
    with capture_logs() as logs:
        async with open_gateway() as it:
            for method, path in (
                *[("GET", path) for path in ("/health", "/metrics", "/ping", "/v1/models")],
                ("HEAD", "/health"),
                ("POST", "/metrics"),
                ("GET", "/ready"),
            ):
                # Not before the others: without a bus the processors are silent, and `/ping` fails soon after.
                if path == "/ready":
                    await it.bus.aclose()
                async with it.http.request(method, path) as response:
                    await response.read()
    lines = [(line["log_level"], line["status"]) for line in logs if line["event"] == "gateway.request"]
    debug, info = ("debug", 200), "info"
    assert lines == [debug, debug, debug, (info, 200), debug, (info, 405), (info, 503)]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"POST /api/v1/text-completion HTTP/1.1\r\nHost: localhost\r\nX-Drip: ",
        b"POST /api/v1/text-completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"POST /api/v1/text-completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
async def test_a_request_that_never_comes_whole_is_cut(said: bytes) -> None:
    # A head that has come whole is not late, however slow the machine is.
    limits = Limits(head=30 if b"\r\n\r\n" in said else 0.1, body=0.1, linger=0.05)
    async with open_gateway(limits=limits) as it, raw_connection(it.address) as raw:

        async def drip() -> None:
            while said:
                await asyncio.sleep(0.02)
                raw.send(b"1\r\n1\r\n" if b"chunked" in said else b"1")

        raw.send(said)
        dripping = asyncio.create_task(drip())
        answer = await raw.rest()
        dripping.cancel()
        assert answer.startswith(b"HTTP/1.1 408") if b"\r\n\r\n" in said else answer == b""


async def test_an_idle_connection_is_closed() -> None:
    async with open_gateway(limits=Limits(head=0.1)) as it, raw_connection(it.address) as raw:
        raw.post(COMPLETION, b'{"prompt":"1"}')
        assert (await raw.rest()).endswith(b"}")


async def test_any_bytes_on_a_connection_disturb_nobody(it: Opened) -> None:
    sent: list[bytes] = []
    line = st.sampled_from([b"POST /api/v1/text-completion HTTP/1.1", b"GET /api/v1/socket HTTP/1.1", b"GET / HTTP/9"])
    header = st.sampled_from(
        [
            b"Host: x",
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"Transfer-Encoding: chunked",
            b"Content-Encoding: gzip",
            b"Upgrade: websocket",
            b"Connection: upgrade",
            b"Expect: 100-continue",
            b"Sec-WebSocket-Version: 13",
            b"Authorization: Bearer \xff",
            b"Origin: \xff",
            b"X: " + b"x" * 9000,
        ]
    )
    request = st.tuples(line | st.binary(max_size=30), st.lists(header, max_size=6), st.binary(max_size=60))

    @settings(max_examples=150, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(request)
    def collect(parts: tuple[bytes, list[bytes], bytes]) -> None:
        sent.append(parts[0] + b"\r\n" + b"".join(header + b"\r\n" for header in parts[1]) + b"\r\n" + parts[2])

    await asyncio.get_running_loop().run_in_executor(None, collect)
    for data in sent:
        async with raw_connection(it.address) as raw:
            raw.send(data)
            raw.writer.write_eof()
    async with it.http.post(COMPLETION, json={"prompt": "2"}) as response:
        assert response.status == 200
