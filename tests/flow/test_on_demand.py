"""Models that are loaded for their first request: once, for all who wait, and unloaded when nobody uses them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.doors.open_lmtp import MODEL, Lmtp, open_lmtp
from tests.fakes.counting_llm import release
from tests.fakes.token_llm import END, TokenLlm
from tests.flow.narrow_gateway import OFTEN
from tests.flow.open_gateway import CONFIG, TEXTS, open_gateway, until_listed
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.config import GatewayConfig
from tg_base.llm import LlmService
from tg_base.server import Processor
from tg_flow.providers.on_demand_model import OnDemandModel, ServiceOutline
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import Timeout, Unavailable
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions


class Shelf:
    """Where models are loaded from, at the edge of the world."""

    def __init__(self) -> None:
        self.loads = 0
        self.closed = 0
        self.may_load = asyncio.Event()
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.error: Unavailable | None = None
        self.model: type[_Shelved] = _Shelved

    async def load(self) -> LlmService:
        self.loads += 1
        await self.may_load.wait()
        if self.error is not None:
            raise self.error
        return self.model(self)


class _Shelved(TokenLlm):
    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self._shelf = shelf

    @override
    async def aclose(self) -> None:
        self._shelf.closing.set()
        await self._shelf.may_close.wait()
        self._shelf.closed += 1


def on_demand(shelf: Shelf, unload_after: float = 60.0) -> OnDemandModel:
    options = TokenLlm.Options()
    outline = ServiceOutline("token", TokenLlm.find_capacity(options), TokenLlm.find_features(options))
    return OnDemandModel("counting", outline, shelf.load, unload_after)


async def ask(model: OnDemandModel, prompt: str = "ab") -> str:
    async with aclosing(model.on_request(TextCompletionRequest(prompt=prompt, streaming=True))) as responses:
        return "".join([response.response or "" async for response in responses])


async def test_all_who_wait_get_one_model_and_who_leaves_stops_nothing() -> None:
    shelf = Shelf()
    model = on_demand(shelf)
    assert (model.loading, model.capacity, model.features) == (True, TokenLlm.capacity, TokenLlm().features)
    asking = [asyncio.create_task(ask(model)) for _ in range(3)]
    await until(lambda: shelf.loads == 1)
    asking[0].cancel()
    shelf.may_load.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == ["ab", "ab"]
    assert (model.loading, shelf.loads, shelf.closed) == (False, 1, 0)
    await model.aclose()
    assert shelf.closed == 1


async def test_a_model_that_cannot_be_loaded_is_tried_again_by_the_next_request() -> None:
    shelf = Shelf()
    shelf.may_load.set()
    shelf.error = Unavailable("the file is gone")
    model = on_demand(shelf)
    for _ in range(2):
        with pytest.raises(Unavailable, match="gone"):
            await ask(model)
    shelf.error = None
    assert await ask(model) == "ab"
    assert shelf.loads == 3
    await model.aclose()


async def test_an_unused_model_is_unloaded_and_loaded_again() -> None:
    shelf = Shelf()
    shelf.may_load.set()
    model = on_demand(shelf, unload_after=0.01)
    for loads in (1, 2):
        assert await ask(model) == "ab"
        await until(lambda: model.loading and shelf.closed == shelf.loads)
        assert shelf.loads == loads
    # Nobody waited any more when it had been loaded.
    shelf.may_load.clear()
    asking = asyncio.create_task(ask(model))
    await until(lambda: shelf.loads == 3)
    asking.cancel()
    shelf.may_load.set()
    await until(lambda: shelf.closed == 3)
    await model.aclose()
    assert shelf.closed == 3


async def test_a_model_that_is_being_unloaded_is_closed_before_the_end() -> None:
    shelf = Shelf()
    shelf.may_load.set()
    shelf.may_close.clear()
    model = on_demand(shelf, unload_after=0.01)
    assert await ask(model) == "ab"
    await asyncio.wait_for(shelf.closing.wait(), 10)
    ending = asyncio.create_task(model.aclose())
    await asyncio.sleep(0)
    shelf.may_close.set()
    await ending
    assert shelf.closed == 1


@asynccontextmanager
async def greeted(http: ClientSession) -> AsyncIterator[Lmtp]:
    """A client that is told what its streams wait for."""
    async with http.ws_connect("/lmtp") as socket:
        client = Lmtp(socket)
        await client.send("HELLO", accept=["SYSTEM"])
        await client.item()
        yield client


async def read_kinds(client: Lmtp, until_kind: str) -> list[str]:
    """The kinds of system messages up to one."""
    kinds: list[str] = []
    while until_kind not in kinds:
        kinds.append((await client.item("SYSTEM"))["kind"])
    return kinds


async def test_what_takes_records_without_a_task_reaches_the_model() -> None:
    model, sent = on_demand(shelf := Shelf()), list[object]()

    class Asked(_Shelved):
        @override
        async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, Any]:
            for text in "abc":
                sent.append((yield TextCompletionResponse(response=text)))

    shelf.may_load.set()
    shelf.model = Asked
    async with aclosing(model.on_request(TextCompletionRequest(prompt="ab", streaming=True))) as responses:
        told = [await anext(responses), await responses.asend("put"), await responses.asend("again")]
    assert ([each.response for each in told], sent) == (["a", "b", "c"], ["put", "again"])
    await model.aclose()


@in_virtual_time
async def test_a_stream_waits_for_its_model_longer_than_for_its_first_record() -> None:
    shelf = Shelf()
    asked = {"prompt": "ab", "streaming": True}
    async with open_gateway(GatewayConfig(port=0, request_timeout=6), instead=on_demand(shelf)) as it:
        asyncio.get_running_loop().call_later(12, shelf.may_load.set)
        async with it.http.post("api/v1/text-completion", json=asked) as response:
            assert '"finish_reason":"length"' in await response.text()


@in_virtual_time
async def test_a_load_that_never_ends_ends_those_who_wait_for_it() -> None:
    model = on_demand(Shelf())
    with pytest.raises(Timeout, match="was not loaded within 1800 s"):
        await ask(model)
    await model.aclose()


async def test_a_client_is_told_that_its_model_is_loading() -> None:
    shelf = Shelf()
    async with (
        open_gateway(instead=on_demand(shelf), timing=OFTEN, listed=True) as it,
        greeted(it.http) as client,
    ):
        await client.send("MODEL_INFO", stream_id=9, model=MODEL)
        assert (await client.item())["status"] == "loading"
        assert (await list_models(it.http), await list_running(it.http)) == ([("counting", True)], [])
        await client.generate(1, [72])
        assert await read_kinds(client, "loading") == ["queued", "loading"]
        shelf.may_load.set()
        # However quickly its first token follows.
        assert await read_kinds(client, "started") == ["started"]
        assert [each["token"] for each in await client.stream(1)] == [72, END]
        # The processor has announced it, and the announcement may be on its way.
        kinds = ["loading"]
        async with asyncio.timeout(10):
            while "loading" in kinds:
                await client.generate(1, [72])
                kinds, items = [], list[int]()
                while END not in items:
                    kind, came = await client.read()
                    kinds += [each["kind"] for each in came] if kind == "SYSTEM" else []
                    items += [each["token"] for each in came] if kind == "TOKEN" else []
        assert shelf.loads == 1
        await client.send("MODEL_INFO", stream_id=9, model=MODEL)
        assert (await client.item())["status"] == "ready"
        assert await list_models(it.http) == [("counting", False)]
        assert await list_running(it.http) == ["counting:latest"]


async def test_a_client_is_told_that_the_processor_which_has_its_request_loads() -> None:
    shelf, loaded = Shelf(), TokenLlm()
    loaded.capacity, loaded.step = 1, asyncio.Semaphore(0)
    async with (
        open_gateway(llm=loaded, timing=OFTEN, listed=True) as it,
        greeted(it.http) as client,
    ):
        await client.generate(1, [72])
        assert await read_kinds(client, "started") == ["queued", "started"]
        second = on_demand(shelf)
        async with Processor(it.bus, CONFIG.topics, second, TEXTS, models=(MODEL,), timing=OFTEN, grace=0.05):
            # One of two processors has the model open, so only the other one knows that this request waits.
            await client.generate(2, [73])
            assert await read_kinds(client, "loading") == ["queued", "loading"]
            shelf.may_load.set()
            assert await read_kinds(client, "started") == ["started"]
            assert [each["token"] for each in await client.stream(2)] == [73, END]
        release(loaded.step, 2)
        assert [each["token"] for each in await client.stream(1)] == [72, END]


async def test_a_request_of_ollamas_clients_that_asks_nothing_loads_the_model() -> None:
    shelf = Shelf()
    async with open_gateway(instead=on_demand(shelf), timing=OFTEN, listed=True) as it:
        for unload in ({"model": MODEL, "keep_alive": 0}, {"model": MODEL, "messages": [], "keep_alive": "0s"}):
            async with it.http.post(f"api/{'chat' if 'messages' in unload else 'generate'}", json=unload) as response:
                assert (await response.json())["done_reason"] == "unload"
        assert shelf.loads == 0, "to stop a model must not load it"
        asked = asyncio.create_task(it.http.post("api/generate", json={"model": MODEL}))
        await until(lambda: shelf.loads == 1)
        assert not asked.done()
        shelf.may_load.set()
        async with await asked as response:
            assert (await response.json())["done_reason"] == "load"
        async with it.http.post("api/chat", json={"model": MODEL, "messages": []}) as response:
            assert (await response.json())["done_reason"] == "load"
        assert shelf.loads == 1


async def list_models(http: ClientSession) -> list[tuple[str, bool]]:
    """Each model, and whether it is yet to be loaded."""
    async with http.get("api/v1/models") as response:
        models = [(each["model"], each.get("loading", False)) for each in (await response.json())["models"]]
    async with http.get("v1/models") as response:
        listed = (await response.json())["data"]
    assert [(each["id"], each.get("loading", False)) for each in listed] == models
    assert all("end_token" in each["features"] for each in listed)
    return models


async def list_running(http: ClientSession) -> list[str]:
    """As Ollama's clients see them."""
    async with http.get("api/ps") as response:
        return [each["name"] for each in (await response.json())["models"]]


@in_virtual_time
async def test_a_client_is_told_that_no_processor_has_room() -> None:
    llm = TokenLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    async with (
        open_gateway(llm=llm, timing=OFTEN, listed=True) as it,
        greeted(it.http) as client,
    ):
        await client.generate(1, [72])
        # The one that runs is not told so, however long it takes.
        assert await read_kinds(client, "started") == ["queued", "started"]
        await client.generate(2, [73])
        assert await read_kinds(client, "throttled") == ["queued", "throttled"]
        release(llm.step, 2)
        items: list[tuple[int, int]] = []
        while len(items) < 4:
            kind, came = await client.read()
            items += [(each["stream_id"], each["token"]) for each in came] if kind == "TOKEN" else []
        assert items == [(1, 72), (1, END), (2, 73), (2, END)]


async def test_a_client_is_told_that_the_gateway_leaves() -> None:
    async with open_lmtp() as (it, plain), greeted(it.http) as client:
        await it.gateway.__aexit__(None, None, None)
        assert await client.item("SYSTEM") == {"stream_id": None, "kind": "draining"}
        # Who has not accepted such messages sees the end alone.
        assert (await plain.socket.receive(timeout=10)).type.name in {"CLOSE", "CLOSING", "CLOSED"}


async def test_a_served_configuration_loads_its_models_on_demand() -> None:
    async with launch(ServeOptions(port=0, on_demand=True, drain=0.05, log_level="warning")) as (config, url):
        assert config.models["tinydemo"].on_demand
        assert url is not None
        async with ClientSession(url) as http:
            await until_listed(http)
            async with greeted(http) as client:
                await client.generate(1, [591, 310], model="tinydemo", max_tokens=1)
                kinds: list[str] = []
                kind = ""
                while kind != "TOKEN":
                    kind, came = await client.read()
                    kinds += [each["kind"] for each in came] if kind == "SYSTEM" else []
                assert kinds == ["queued", "loading", "started"]
                assert came[0]["finish_reason"] in {"length", "stop"}
