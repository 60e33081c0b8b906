"""The pool provider over servers that misbehave: where requests go, when they go elsewhere, and what stays counted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.pool_member import pool_member
from tests.flow.usage_records import record_here
from tests.picker.pools.test_pool_resources import OBJECTIVE, POOL, REWRITE, ROUTE
from tests.unit.test_config_edits import replace, seen
from tests.until import until
from tg_base.llm import LlmChunk
from tg_base.telemetry import EndedSpan, Span, record_spans, span_names, trace
from tg_flow.providers import open_provider
from tg_picker.provider import Pool
from tg_schema import TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.errors import BadRequest, IncompleteStream, NotFound, RateLimited, Unavailable

MODEL = OpenAiServer.model
REQUEST = TextCompletionRequest(prompt="say hello", streaming=True)
DOWN = Script.refuse(503, "overloaded")
DEAD = "127.0.0.1:1"
AIBRIX = "models: [{{name: gpt-fake, endpoints: ['{}', '{}']}}]"

OpenPool = Callable[..., Awaitable[Pool]]


@pytest.fixture
async def servers() -> AsyncIterator[list[OpenAiServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(OpenAiServer.running()) for _ in range(2)]


@pytest.fixture
async def open_pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenPool]:
    monkeypatch.delenv("POOL_API_KEY", raising=False)
    async with AsyncExitStack() as stack:

        async def open_it(*servers: OpenAiServer, **options: Any) -> Pool:
            table = {"endpoints": [address(server) for server in servers], "scraped": False, **options}
            provider = await open_provider("pool", MODEL, table)
            stack.push_async_callback(provider.aclose)
            assert isinstance(provider, Pool)
            return provider

        yield open_it


def address(server: OpenAiServer) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def counted(pool: Pool) -> list[int]:
    """The requests that the scheduler believes to run, by server."""
    return [pool._picker.scheduler.server(endpoint).requests for endpoint in pool.view.endpoints]


def resident(pool: Pool) -> list[set[str]]:
    """The adapters that the scheduler believes to be loaded, by server."""
    return [set(pool._picker.scheduler.server(endpoint).adapters.used_at) for endpoint in pool.view.endpoints]


async def records(pool: Pool, request: TextCompletionRequest = REQUEST) -> list[TextCompletionResponse]:
    async with aclosing(pool.on_request(request)) as stream:
        return [record async for record in stream]


async def test_a_record_of_usage_names_the_server_that_answered(
    open_pool: OpenPool, servers: list[OpenAiServer]
) -> None:
    pool = await open_pool(*servers)
    for down, up in (servers, servers[::-1]):
        down.play(DOWN)
        up.play(Script())
        recorded = record_here()
        assert await text(pool)
        assert [(record.server, record.provider) for record in recorded] == [(address(up), "pool")]


async def text(pool: Pool, request: TextCompletionRequest = REQUEST) -> str:
    return "".join(each.response or "" for each in await records(pool, request))


async def test_an_answer_is_that_of_a_server(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers, policy="round-robin")
    assert [await text(pool) for _ in range(4)] == ["Hello €!"] * 4
    assert [len(server.exchanges) for server in servers] == [2, 2]
    last = (await records(pool))[-1]
    assert (last.finish_reason, last.in_token, last.out_token) == ("stop", 11, 3)
    assert servers[0].exchanges[0].headers["endpoint-load-metrics-format"] == "text"
    assert counted(pool) == [0, 0]


@pytest.mark.parametrize(
    "failing",
    [
        DOWN,
        Script.refuse(429, "rate_limit_exceeded"),
        Script(fault=Fault.ABORT_BEFORE_STATUS),
        Script(fault=Fault.ABORT, after=0),
        Script(fault=Fault.CLEAN_END, after=0),
        Script(fault=Fault.RAW, raw=b"data: {nonsense\n\n", after=0),
        Script.refuse(404, "model_not_found"),
    ],
)
async def test_a_failure_before_the_first_token_goes_elsewhere_once(
    servers: list[OpenAiServer], open_pool: OpenPool, failing: Script
) -> None:
    pool = await open_pool(*servers, policy="round-robin")
    servers[0].play(failing)
    assert [await text(pool) for _ in range(2)] == ["Hello €!"] * 2
    assert len(servers[1].exchanges) == 2
    assert counted(pool) == [0, 0]


async def test_each_server_that_is_asked_gets_the_id_of_a_span_below_the_call(
    servers: list[OpenAiServer], open_pool: OpenPool
) -> None:
    ended: list[EndedSpan] = []
    record_spans(ended.append)
    try:
        pool = await open_pool(*servers, policy="round-robin")
        servers[0].play(DOWN)
        trace.enter(Span.at_door("r-1", None))
        assert await text(pool) == "Hello €!"
    finally:
        record_spans(None)
    first, second, call = ended
    assert [each.name for each in ended] == [*(f"attempt {each.name}" for each in pool.view.endpoints), f"chat {MODEL}"]
    assert [each.error for each in ended] == ["unavailable", "", ""]
    assert first.span.above == second.span.above == call.span.traceparent.split("-")[2]
    sent = [server.exchanges[0].headers["traceparent"] for server in servers]
    assert sent == [first.span.traceparent, second.span.traceparent]
    assert call.attributes[span_names.OUTPUT_TOKENS] == 3


async def test_no_server_is_asked_twice(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers)
    for server in servers:
        server.play(DOWN)
    with pytest.raises(Unavailable, match="status 503"):
        await text(pool)
    assert [len(server.exchanges) for server in servers] == [1, 1]
    assert counted(pool) == [0, 0]


async def test_a_route_may_say_how_many_servers_are_asked(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    places = [address(server) for server in servers]
    table = {"name": "once", "endpoints": places, "models": [MODEL], "failure": {"max_attempts": 1}}
    pool = await open_pool(endpoints=[], pools=[table])
    for server in servers:
        server.play(DOWN)
    with pytest.raises(Unavailable, match="status 503"):
        await text(pool)
    assert sorted(len(server.exchanges) for server in servers) == [0, 1]
    assert counted(pool) == [0, 0]


async def test_a_model_that_no_server_has_is_not_announced(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers)
    servers[0].model = "another"
    assert [await text(pool) for _ in range(3)] == ["Hello €!"] * 3
    assert not pool.adapters_only
    servers[1].model = "another"
    with pytest.raises(NotFound):
        await text(pool)
    assert pool.adapters_only


async def test_a_server_that_is_gone(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(endpoints=[DEAD, address(servers[0])], policy="round-robin")
    assert [await text(pool) for _ in range(3)] == ["Hello €!"] * 3


async def test_after_the_first_token_no_other_server_is_asked(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers)
    for server in servers:
        server.play(Script(fault=Fault.ABORT, after=1))
    with pytest.raises(IncompleteStream):
        await text(pool)
    assert sum(len(server.exchanges) for server in servers) == 1
    assert counted(pool) == [0, 0]


async def test_a_wrong_request_is_wrong_everywhere(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(*servers)
    for server in servers:
        server.play(Script.refuse(400, "invalid_value"))
    with pytest.raises(BadRequest):
        await text(pool)
    assert sum(len(server.exchanges) for server in servers) == 1


async def test_a_client_that_leaves_is_counted_no_longer(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(servers[0])
    servers[0].play(Script(fault=Fault.ENDLESS))
    async with aclosing(pool.on_request(REQUEST)) as stream:
        await anext(stream)
        assert counted(pool) == [1]
    assert counted(pool) == [0]
    async with asyncio.timeout(30):
        await servers[0].exchanges[0].left.wait()


async def test_chunks_that_come_while_one_is_awaited_wake_no_task(
    servers: list[OpenAiServer], open_pool: OpenPool
) -> None:
    pool, passed = await open_pool(servers[0]), list[LlmChunk]()
    servers[0].play(Script(fault=Fault.ENDLESS))

    def keep(chunk: LlmChunk) -> bool:
        passed.append(chunk)
        return len(passed) < 3

    async with aclosing(pool.generate_content_stream(REQUEST)) as chunks:
        await anext(chunks)
        # The first is held until it is known which server answers, and the next one may have come with it.
        for _ in range(100):
            await chunks.asend(keep)
            if passed:
                break
    assert len(passed) >= 3
    assert counted(pool) == [0]


async def test_routes_lead_to_adapters(servers: list[OpenAiServer], open_pool: OpenPool, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(f"{POOL}---{ROUTE}---{REWRITE.replace('weight: 9', 'weight: 0')}---{OBJECTIVE}")
    pool = await open_pool(*servers, resources=[str(file)], labels={"app": "vllm"})
    for server in servers:
        server.model = "sentiment-v2"
    asked = TextCompletionRequest(prompt="say hello", adapter="sentiment")
    assert await text(pool, asked) == "Hello €!"
    with pytest.raises(NotFound, match="no route leads to the adapter of this request; known are sentiment"):
        await text(pool, TextCompletionRequest(prompt="say hello", adapter="mood"))
    assert [model.id for model in await pool.models()] == [MODEL, "sentiment"]
    assert pool.adapters == {"sentiment": "sentiment"}
    replace(file, file.read_text().replace("name: sentiment\n", "name: satire\n"))
    # What a processor announces with each heartbeat: the rewrite still names what no route does.
    await until(lambda: pool.adapters == {"satire": "satire", "sentiment": "sentiment"})
    assert await text(pool, asked) == "Hello €!"


async def waiting_in(pool: Pool, number: int) -> None:
    """Until so many requests wait, of which every one has had its turn."""
    async with asyncio.timeout(30):
        await asyncio.sleep(0)
        # Nothing tells a client of a processor that its request waits for a server.
        while sum(requests for _, _, requests, *_ in pool._picker.dispatcher.queues) != number:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_request_that_a_worker_process_wrote(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(servers[0])
    servers[0].model = "lora"
    asked = TextCompletionRequest(prompt="say hello", adapter="lora", streaming=True)
    prepared = await pool.read(encode(asked))
    assert prepared.prompt is None
    assert [await text(pool, each) for each in (asked, prepared)] == ["Hello €!"] * 2
    sent, prepared_sent = servers[0].exchanges
    assert sent.body == prepared_sent.body


async def test_an_adapter_that_a_server_lacks_is_asked_of_another(
    servers: list[OpenAiServer], open_pool: OpenPool
) -> None:
    pool = await open_pool(*servers, policy="round-robin")
    servers[1].model = "lora"
    asked = TextCompletionRequest(prompt="say hello", adapter="lora")
    assert [await text(pool, asked) for _ in range(4)] == ["Hello €!"] * 4
    assert resident(pool) == [set(), {"lora"}]
    # The one that lacks it is asked once.
    assert [len(server.exchanges) for server in servers] == [1, 4]
    servers[1].play(DOWN)
    # It may have it, so that to ask again later helps, whatever the other one says.
    with pytest.raises(Unavailable):
        await text(pool, asked)
    nobody = TextCompletionRequest(prompt="say hello", adapter="nobody")
    with pytest.raises(NotFound, match=r"no server of the pool .* that was asked has the adapter 'nobody'"):
        await text(pool, nobody)


async def test_the_load_in_a_header_is_taken(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(servers[0])
    told = "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3"
    servers[0].play(Script(fault=Fault.STATUS, status=429, headers=(("endpoint-load-metrics", told),)))
    with pytest.raises(RateLimited):
        await text(pool)
    report = pool._picker.scheduler.server(pool.view.endpoints[0]).report
    assert report is not None
    assert (report.queued, report.kv_usage) == (3, 0.4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endpoints": []}, "no model servers are configured: set endpoints, names, endpoint_files or pools"),
        ({"endpoints": ["http://a:1"]}, 'endpoints: "http://a:1" must be HOST:PORT, without a scheme or path'),
        ({"endpoints": ["a:1", "b:1", "a:1"]}, 'endpoints: "a:1" is there twice; keep one'),
        (
            {"policy": "best"},
            'there is no policy "best"; known are least-request, predicted-wait, round-robin, ',
        ),
        ({"scrape": {"path": "metrics"}}, "scrape.path must begin with a slash, as /metrics"),
        ({"api_path": "v1"}, "api_path must begin with a slash, as /v1"),
        ({"admission": "some"}, 'admission must be one of "always", "threshold", "probabilistic"'),
        ({"base_url": "http://a/v1"}, "a pool has no base_url: name its servers"),
        ({"resources": ["none.yaml"]}, "none.yaml is not there; name an existing resource file"),
        ({"scrape": {"intervall": 1}}, "intervall"),
        ({"waiting": {"max_seconds": 0}}, "max_seconds"),
        ({"waiting": {"bands": [{"priority": 1}, {"priority": 1}]}}, "waiting: priority 1 is repeated; keep one"),
        ({"scrape": {"interval": 0}}, "interval"),
        ({"scrape": {"kind": "cllm"}}, "kind"),
    ],
)
async def test_wrong_options(open_pool: OpenPool, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await open_pool(**{"endpoints": [DEAD], **options})
    assert sentence in caught.value.message


async def test_the_key_goes_to_each_server(
    servers: list[OpenAiServer], open_pool: OpenPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", "sk-some-key")
    pool = await open_pool(*servers, key_variable="THEIR_KEY", policy="round-robin")
    for server in servers:
        server.key = "sk-some-key"
    assert [await text(pool) for _ in range(2)] == ["Hello €!"] * 2


async def test_a_server_whose_page_nobody_answers_is_left_out(
    servers: list[OpenAiServer], open_pool: OpenPool, tmp_path: Path
) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(AIBRIX.format(DEAD, address(servers[0])))
    scrape = {"interval": 0.005, "timeout": 60}
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        pool = await open_pool(endpoint_files=[str(file)], policy="round-robin", scraped=True, scrape=scrape)
        while (await seen(logs, "scrape.failed"))["address"] != DEAD:
            pass
        assert [await text(pool) for _ in range(3)] == ["Hello €!"] * 3
        assert "pool.failover" not in {each["event"] for each in logs}
        # All servers change at once: requests go on, and those that left are forgotten.
        file.write_text(AIBRIX.format(address(servers[1]), address(servers[1]).replace("127.0.0.1", "localhost")))
        await seen(logs, "pools.in_force")
        asked = len(servers[0].exchanges)
        assert [await text(pool) for _ in range(3)] == ["Hello €!"] * 3
    chats = [each for each in servers[0].exchanges[asked:] if each.path.endswith("completions")]
    assert chats == []


async def test_requests_wait_for_the_first_server_of_an_empty_pool(
    servers: list[OpenAiServer], open_pool: OpenPool, tmp_path: Path
) -> None:
    resources, file = tmp_path / "pools.yaml", tmp_path / "endpoints.yaml"
    resources.write_text(POOL)
    file.write_text("endpoints: []")
    pool = await open_pool(endpoint_files=[str(file)], resources=[str(resources)])
    asked = asyncio.create_task(text(pool))
    await waiting_in(pool, 1)
    host, port = address(servers[0]).split(":")
    replace(file, f"endpoints: [{{name: a, address: {host}, port: '{port}', labels: {{app: vllm}}}}]")
    assert await asked == "Hello €!"


async def test_requests_wait_while_no_server_takes_connections(open_pool: OpenPool) -> None:
    async with pool_member() as gone:
        pass
    scrape = {"interval": 0.005}
    pool = await open_pool(endpoints=[gone.address], scraped=True, scrape=scrape, waiting={"max_seconds": 20})
    await until(lambda: pool._picker.pools.unreachable)
    asked = asyncio.create_task(text(pool))
    await waiting_in(pool, 1)
    async with pool_member(gone.port):
        assert await asked == f"I am {gone.port}"
    await until(lambda: pool._picker.pools.unreachable)
    short = await open_pool(endpoints=[gone.address], scraped=True, scrape=scrape, waiting={"max_seconds": 0.05})
    await until(lambda: short._picker.pools.unreachable)
    with pytest.raises(Unavailable, match="the pool has no server"):
        await text(short)


async def test_a_pool_embeds_and_counts_nothing(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    pool = await open_pool(servers[0])
    for operation in ("embed", "count-tokens", "tokenize", "detokenize", "score"):
        asked = TextCompletionRequest(prompt="a", texts=("a",) if operation == "embed" else (), operation=operation)
        with pytest.raises(BadRequest):
            await records(pool, asked)
    assert not [each for each in servers[0].exchanges if each.path.endswith("completions")]


async def test_what_may_be_refused_is_while_others_wait(servers: list[OpenAiServer], open_pool: OpenPool) -> None:
    server = servers[0]
    server.play(*[Script(fault=Fault.STALL_BEFORE_STATUS)] * 5, Script())
    pool = await open_pool(server, admission="threshold")
    waiting = [asyncio.create_task(records(pool)) for _ in range(5)]
    await server.exchange(4)
    with pytest.raises(RateLimited, match="busy"):
        await records(pool, msgspec.structs.replace(REQUEST, sheddable=True))
    assert await text(pool) == "Hello €!"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert await text(pool, msgspec.structs.replace(REQUEST, sheddable=True)) == "Hello €!"
