"""Names, routes, flows and services that are edited while they serve: in force at all, and no stream is touched."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.echo_service import EchoConfig, EchoKind, EchoRequest, EchoService
from tests.fakes.shared_bus import SharedBus
from tests.flow.edited_models import LIVELY, OneWord, table, write
from tests.flow.serve_context import context_of
from tests.flow.served_gateways import GATEWAYS, SERVICES, ask, config_of, gateways, share_bus, text_of
from tests.flow.socket_frames import answer
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.config.reader import parse_config
from tg_base.protocol import Route
from tg_base.runtime import running
from tg_base.server import Opened, Processor, ServeContext
from tg_schema import TEXT_COMPLETION, AgentRequest, PromptRequest, TextCompletionResponse, encode
from tg_schema.features import Feature
from tg_schema.topics import Topics
from tg_serve.launcher import inspect, launch
from tg_serve.options import GATEWAY, ServeOptions

pytestmark = pytest.mark.usefixtures("fresh_models")

TURNS = [{"role": "user", "content": "x"}]
NAMED = 'aliases = { nick = "m" }'
ROUTED = '[routes]\nr.models = ["m", "n"]\n'


async def test_aliases_and_routes_follow_the_file_at_all_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(ROUTED, NAMED)) as it, AsyncExitStack() as stack:
        assert [await it.say(name) for name in ("nick", "r")] == [{"old old"}] * 2
        streams = []
        for http in it.doors:
            for name in ("nick", "r"):
                body = {"model": name, "prompt": "wait", "streaming": True}
                response = await stack.enter_async_context(http.post("api/v1/text-completion", json=body))
                streams.append((response, await response.content.readuntil(b"\n\n")))
        socket = await stack.enter_async_context(it.doors[0].ws_connect("api/v1/socket"))
        it.edit(config_of('[routes]\nr.models = ["n", "m"]\n', 'aliases = { nick = "n", new = "r" }'))
        assert (await it.told("config.in_force"))["keys"] == [
            "gateway.aliases.nick", "gateway.aliases.new", "routes.r.models",
        ]  # fmt: skip
        assert [await it.say(name) for name in ("nick", "r", "new")] == [{"other other"}] * 3
        request = {"prompt": "x", "model": "nick"}
        told = await answer(socket, {"id": "later", "service": "text-completion", "request": request})
        assert told["response"]["response"] == "other other"
        await it.until_listed("m", "n", "r", "nick", "new")
        OneWord.gate.set()
        assert {text_of(begun + await response.read()) for response, begun in streams} == {"old old"}


async def test_a_name_that_leads_nowhere_changes_nothing_at_any_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(ROUTED, NAMED)) as it:
        for wrong, words in (
            (config_of(ROUTED, 'aliases = { nick = "lost" }'), 'no flow has the model "lost"; name one of them'),
            (config_of('[routes]\nr.models = ["s"]\ns.models = ["r"]\n', NAMED), "lead to each other in a circle"),
            (config_of("[routes]\nr.weights = { m = 0 }\n", NAMED), "routes.r.weights.m must be a number > 0"),
        ):
            it.edit(wrong)
            assert words in (await it.told("config.refused"))["reason"]
            assert [await it.say(name) for name in ("nick", "r")] == [{"old old"}] * 2


TEMPLATE = '[prompts.templates.say]\nprompt = "{{ word }}"\n'
ALL = """[flows]
f = { text-completion.model = "m", prompt = {}, agent.calling = "text" }
g.text-completion.model = "n"
"""


async def test_flows_come_and_go_at_all_gateways_and_touch_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(TEMPLATE, flows=ALL)) as it, AsyncExitStack() as stack:
        streams = []
        for http in it.doors:
            for path, body in (
                ("flow/g/service/text-completion", {"prompt": "wait"}),
                ("flow/f/service/prompt", {"id": "say", "variables": {"word": "wait"}}),
            ):
                asked = http.post(f"api/v1/{path}", json=body | {"streaming": True})
                response = await stack.enter_async_context(asked)
                streams.append((response, await response.content.readuntil(b"\n\n")))
        # The flow g goes, h comes with a model, a prompt and an agent of its own, and k is bound to a route.
        flows = ALL.replace("g.text-completion", "k.text-completion").replace('"n"', '"r"')
        flows += 'h = { text-completion.model = "added", prompt = {}, agent.calling = "text" }\n'
        more = TEMPLATE + table("added", "fresh") + '[routes]\nr.models = ["added", "m"]\n'
        it.edit(config_of(more, flows=flows))
        await it.told("config.in_force")
        await it.told("models.in_force", 1)
        await it.told("services.in_force", 2)
        await it.until_listed("m", "added", "r")
        assert [await it.say(name) for name in ("m", "added", "r")] == [{"old old"}, {"fresh fresh"}, {"fresh fresh"}]
        for http in it.doors:
            told = [
                await ask(http, "flow/h/service/prompt", {"id": "say", "variables": {"word": "x"}}),
                await ask(http, "flow/k/service/text-completion", {"prompt": "x"}),
                await ask(http, "flow/h/service/agent", {"question": "x"}),
                await ask(http, "flow/g/service/text-completion", {"prompt": "x"}),
            ]
            assert told == ["fresh fresh"] * 3 + ["404"]
            async with http.get("ready") as response:
                assert response.status == 200
        assert OneWord.closed == []
        OneWord.gate.set()
        texts = [text_of(begun + await response.read()) for response, begun in streams]
        assert texts == ["other other", "old old"] * GATEWAYS
        await until(lambda: OneWord.closed == ["other"])


async def test_a_flow_of_plain_peers_comes_at_all_gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "[flows.theirs]\ntext-completion.plain = true\n"
    (route,) = parse_config(more, Path("tg.toml")).routes("text-completion")
    async with gateways(tmp_path, monkeypatch, config_of()) as it:
        bus = SharedBus.behind

        async def answer_all() -> None:
            async with bus.subscribe(route.request, "theirs") as requests:
                async for request in requests:
                    body = encode(TextCompletionResponse(response="theirs", end_of_stream=True))
                    await bus.publish(route.response, body, {"id": request.properties["id"]})

        async with running(answer_all()):
            it.edit(config_of(more))
            assert (await it.told("config.in_force"))["keys"] == ["flows.theirs"]
            asked = [ask(http, "flow/theirs/service/text-completion", {"prompt": "x"}) for http in it.doors * 2]
            assert await asyncio.gather(*asked) == ["theirs"] * 2 * GATEWAYS
            assert await it.say("m") == {"old old"}


@pytest.mark.parametrize(
    ("service", "request_of"),
    [("prompt", PromptRequest("say", {"word": '"x"'})), ("agent", AgentRequest("x"))],
)
async def test_what_a_replaced_prompt_or_agent_still_answers_goes_by_the_route_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str, request_of: PromptRequest | AgentRequest
) -> None:
    more = '[flows.k]\ntext-completion.model = "r"\nprompt = {}\nagent.calling = "text"\n'
    file = share_bus(tmp_path, monkeypatch, config_of(TEMPLATE + ROUTED + more))
    (route,) = parse_config(file.read_text(), file).routes(service)
    with capture_logs() as logs:
        async with launch(ServeOptions(file=file, only=SERVICES)), Requestor(SharedBus.behind, Topics()) as requestor:
            client = Client(requestor, route)
            assert (await client.call(request_of)).model == "m"
            # The flow goes and its route too: who has not heard of that asks on in its queue.
            write(file, config_of(TEMPLATE))
            await until(lambda: sum(line["event"] == "services.in_force" for line in logs) == 2)
            assert (await client.call(request_of)).model == "m"
    await SharedBus.behind.aclose()


async def test_a_tool_that_cannot_be_opened_leaves_the_agents_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(flows=ALL)) as it:
        it.edit(config_of('[tools.t]\nkind = "mcp"\noptions.command = ["/no/such/program"]\n', flows=ALL))
        assert "the MCP server" in (await it.told("services.refused", 1))["reason"]
        assert await ask(it.doors[0], "agent", {"question": "x"}) == "old old"
        it.edit(config_of('[tools.t]\nkind = "python"\noptions.function = "tests.fakes.tools:add"\n', flows=ALL))
        await it.told("services.in_force", 1)
        assert await ask(it.doors[0], "agent", {"question": "x"}) == "old old"


def processor(flow: str, model: str, *, features: frozenset[Feature] = frozenset()) -> Processor:
    """As a process with another file would run it."""
    llm = CountingLlm(model)
    llm.features |= features
    topics, service = Topics(), TEXT_COMPLETION.name
    route = Route(flow, TEXT_COMPLETION, topics.request(flow, service), topics.response(flow, service))
    return Processor(SharedBus.behind, topics, llm, (route,), models=(model,), grace=0.05)


async def test_a_model_that_a_processor_brings_is_served_by_all_gateways_until_the_last_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of("", NAMED)) as it:
        async with processor("new", "novel", features=frozenset({"raw", "embed"})):
            await it.until_listed("m", "n", "nick")
            it.edit(config_of("", f"announced = true\n{NAMED}"))
            await it.told("config.in_force")
            await it.until_listed("m", "n", "novel", "nick")
            assert await it.say("novel", "3") == {"0 1 2 "}
            async with processor("new", "novel", features=frozenset({"raw"})), processor("other", "nick"):
                for http in it.doors:
                    await until_features(http, "novel", has="raw", lacks="embed")
                assert await it.say("nick") == {"old old"}
            for http in it.doors:
                await until_features(http, "novel", has="embed", lacks="choice")
        await it.until_listed("m", "n", "nick")
        for http in it.doors:
            async with http.post("v1/chat/completions", json={"model": "novel", "messages": TURNS}) as response:
                assert response.status == 404


async def until_features(http: ClientSession, model: str, *, has: str, lacks: str) -> None:
    """Until a gateway lists a model as its processors are together."""
    async with asyncio.timeout(30):
        while True:
            async with http.get("api/v1/models") as response:
                rows = {each["model"]: each["features"] for each in (await response.json())["models"]}
            if has in rows[model] and lacks not in rows[model]:
                return


@in_virtual_time
async def test_a_check_and_a_start_of_a_gateway_warn_of_flows_that_no_process_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = share_bus(tmp_path, monkeypatch, config_of(ROUTED))
    order = ServeOptions(file=file, only=(GATEWAY,))
    async with processor("f", "m"):
        with capture_logs() as logs:
            said, findings = await inspect(order)
            assert (said[:3], findings) == ("ok:", [])
            async with launch(order):
                await until(lambda: len(warnings(logs)) == 2)
        expected = {"flow": "g", "service": "text-completion", "model": "n", "at": f"{file}, line 19"}
        assert [{**line, **expected} for line in warnings(logs)] == warnings(logs)
    await SharedBus.behind.aclose()


def warnings(logs: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in logs if line["event"] == "flow.unserved"]


FILE = '[flows]\nf.echo.greeting = "old"\n'


class OddService(EchoService):
    """One that cannot be closed if its greeting says so."""

    def __init__(self, config: EchoConfig) -> None:
        super().__init__(config)
        self._unclosable = config.greeting == "unclosable"

    @override
    async def aclose(self) -> None:
        if self._unclosable:
            raise RuntimeError("a defect")


class OddKind(EchoKind):
    """Its services do as their greeting says."""

    def __init__(self) -> None:
        self.opening: list[str] = []

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        bound = context.config.bound(EchoConfig)
        for route in self.routes(context.config):
            self.opening.append(bound[route.flow].greeting)
            if self.opening[-1] == "hangs":
                await asyncio.Event().wait()
            yield Opened(OddService(bound[route.flow]), (route,))


@dataclass
class Echoes:
    """What a test needs of them."""

    file: Path
    kind: OddKind
    requestor: Requestor
    clients: dict[str, Client[Any, Any]]
    logs: list[MutableMapping[str, Any]]

    async def edit(self, text: str, event: str) -> MutableMapping[str, Any]:
        """Write the file, and wait for this line of the log."""
        self.logs.clear()
        write(self.file, text)
        await until(lambda: any(line["event"] == event for line in self.logs))
        return next(line for line in self.logs if line["event"] == event)

    def find_processors(self, flow: str) -> set[str]:
        """Who reads the flow's queue."""
        return {each.processor for each in self.requestor.presence.serving(self.clients[flow].route.request)}

    async def replace(self, text: str) -> None:
        """Edit the service of f, and wait until only the new one takes requests."""
        await self.say()
        before = self.find_processors("f")
        await self.edit(text, "services.in_force")
        await until(lambda: before.isdisjoint(self.find_processors("f")))

    async def say(self, flow: str = "f") -> str:
        return str((await self.clients[flow].call(EchoRequest("x"))).text)


@asynccontextmanager
async def echoing(folder: Path, text: str = FILE) -> AsyncIterator[Echoes]:
    bus, kind, file = MemoryBus(), OddKind(), folder / "tg.toml"
    write(file, text)
    with capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01, services=(EchoConfig,)) as watcher:
            topics = watcher.config.topics
            async with (
                kind.serve(context_of(watcher, bus, LIVELY)),
                Requestor(bus, topics, timing=LIVELY) as requestor,
            ):
                routes = watcher.config.routes("echo")
                yield Echoes(file, kind, requestor, {route.flow: Client(requestor, route) for route in routes}, logs)
    await bus.aclose()


@pytest.mark.parametrize("words", [["unclosable", "new"], ["old", "unclosable", "new"]], ids=["start", "edit"])
async def test_a_replaced_service_that_cannot_be_closed_leaves_the_new_one_serving(
    tmp_path: Path, words: list[str]
) -> None:
    first, *edits, last = (FILE.replace("old", word) for word in words)
    async with echoing(tmp_path, first) as it:
        for text in edits:
            await it.replace(text)
        failed = await it.edit(last, "services.close_failed")
        assert failed["reason"] == "a service has a defect; the log says which"
        await it.replace(FILE.replace("old", "newer"))
        assert await it.say() == "newer x "


async def test_an_edit_corrects_a_service_whose_opening_hangs(tmp_path: Path) -> None:
    async with echoing(tmp_path) as it:
        before = await it.say(), it.find_processors("f")
        write(it.file, FILE.replace("old", "hangs"))
        await until(lambda: it.kind.opening[1:] == ["hangs"])
        # One that changes no service lets it go on.
        await it.edit(FILE.replace("old", "hangs") + '[prompts.templates.t]\nprompt = "x"\n', "config.in_force")
        assert (await it.say(), it.find_processors("f")) == before
        await it.replace(FILE.replace("old", "new"))
        assert await it.say() == "new x "
        assert it.kind.opening == ["old", "hangs", "new"]


async def test_the_queue_of_a_flow_that_goes_is_still_read_for_a_while(tmp_path: Path) -> None:
    async with echoing(tmp_path, FILE + "g.echo = {}") as it:
        assert [await it.say(flow) for flow in "fg"] == ["old x ", "x "]
        before = it.find_processors("g")
        await it.replace(FILE.replace("old", "new"))
        assert it.find_processors("g") == before
        assert [await it.say(flow) for flow in "fg"] == ["new x ", "x "]
        await until(lambda: not it.find_processors("g"))
