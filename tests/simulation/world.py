"""Scenario -> processes: the real services, each on a loop of its own, and callers that write down what they see."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tests.simulation.calm import Calm
from tests.simulation.echo_tool import EchoTool
from tests.simulation.ledger import Ledger, Load, Stream
from tests.simulation.scenario_terms import Asked, Scenario, Trouble
from tests.simulation.scripted_model import Generation, Script, ScriptedModel
from tests.simulation.simulated_broker import Message, SimulatedBroker
from tests.simulation.simulated_bus import SimulatedBus
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.simulator import Simulator
from tests.simulation.wiretap import Wiretap
from tg_base.client import BeginPermit, Client, Requestor
from tg_base.config import AgentConfig, Config, PromptConfig, RouteConfig, TextCompletionConfig
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.protocol import StreamKey
from tg_base.server import Host, Processor, Service
from tg_flow.agent import AgentModel, AgentPrompts, AgentService
from tg_flow.agent.service import load_patterns
from tg_flow.prompt import PromptService, Templates
from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentRequest,
    PromptRequest,
    TextCompletionRequest,
    TgError,
    decode,
    encode,
)
from tg_schema.usage_record import UsageRecord

RESTART = 1.0
"""Seconds until a process that has ended itself is started again."""
LAST_RESTART = 10.0
"""Seconds after the last fault from which on none may end itself."""
SWALLOWED = 3.0
"""Seconds more for a request that the broker gives to a dead process: who is idle is told by announcements alone."""
PERMIT = 0.03
"""Seconds that a caller takes to permit the begin of a request, where it has to."""
CONFIG = Config(
    flows={
        flow: {
            "text-completion": TextCompletionConfig(model=model),
            "prompt": PromptConfig(),
            "agent": AgentConfig(calling="text"),
        }
        for flow, model in {"a": "scripted", "b": "other"}.items()
    },
    model_routes={
        "by-a": RouteConfig(models=("scripted", "other")),
        "by-b": RouteConfig(models=("other", "scripted")),
    },
    prompts=PromptsConfig(templates={"say": TemplateConfig(prompt="{{ script }}")}),
)
TOPICS = CONFIG.topics
ROUTES = {(route.flow, name): route for name in (TEXT_COMPLETION.name, PROMPT.name, AGENT.name)
          for route in CONFIG.routes(name)}  # fmt: skip


async def _permit() -> bool:
    """Every caller permits its request to begin, in its time."""
    await asyncio.sleep(PERMIT)
    return True


def _standstill() -> float:
    """The clock of a template's render, which takes no time here."""
    return 0.0


TEMPLATES = Templates.of(CONFIG)
PROMPTS = AgentPrompts.of(CONFIG, time=_standstill)


class World:
    """Everything of one run.

    Attributes:
        gateways: processes that ask.
        models: processes that generate.
        helpers: processes that do both.
        requestors: by process, of its present life.
        hosts: by process, of its present life.
        processors: by process, those of its present life.
        loads: by process and flow, how busy its model is.
        calm: tells what goes wrong, and for whom.
        wire: listens to what processes publish.
        ended: which process ended when.
        disturbed_at: when a process has last begun or ended, or got its broker back.
    """

    def __init__(self, simulator: Simulator, scenario: Scenario) -> None:
        self.simulator = simulator
        self.scenario = scenario
        self.ledger = Ledger(simulator)
        self.calm = Calm(self)
        self.wire = Wiretap(self)
        self.broker = SimulatedBroker(simulator, scenario.max_message, scenario.told_max_message)
        self.broker.swallowed = self._swallowed
        self.broker.taken = self._taken
        self.requestors: dict[SimulatedProcess, Requestor] = {}
        self.hosts: dict[SimulatedProcess, Host] = {}
        self.processors: dict[SimulatedProcess, list[Processor]] = {}
        self.buses: dict[SimulatedProcess, SimulatedBus] = {}
        self.loads: dict[tuple[SimulatedProcess, str], Load] = {}
        self.tasks: dict[SimulatedProcess, int] = {}
        self.ended: list[tuple[SimulatedProcess, float]] = []
        self.disturbed_at = 0.0
        skews = iter(scenario.skews)
        self.gateways = [self._process(f"gateway{i}", self._gateway, skews) for i in range(scenario.gateways)]
        self.models = [self._process(f"model{i}", self._model, skews) for i in range(len(scenario.capacities))]
        bodies = {"prompt": self._prompt, "agent": self._agent}
        self.helpers = [self._process(name, bodies[name], skews) for name in scenario.helpers]

    @property
    def processes(self) -> list[SimulatedProcess]:
        """All of them."""
        return [*self.gateways, *self.models, *self.helpers]

    def target(self, trouble: Trouble) -> SimulatedProcess:
        """Whom a fault hits, unless it hits all."""
        return self.processes[trouble.target % len(self.processes)]

    def lost(self, topics: tuple[str, ...], since: float, until: float) -> int:
        """How many messages of these topics the broker has dropped in that time."""
        return sum(topic in topics and since <= time <= until for topic, time in self.broker.dropped)

    def _process(self, name: str, body: Callable[[SimulatedProcess], Awaitable[None]], skews: Any) -> SimulatedProcess:
        process = SimulatedProcess(self.simulator, name, body, next(skews))
        process.step_cost = self.scenario.step
        process.died = self._died
        process.failed = self._failed
        self.simulator.processes.append(process)
        return process

    def _bus(self, process: SimulatedProcess) -> SimulatedBus:
        bus = self.buses[process] = SimulatedBus(process, self.broker)
        bus.on_publish = partial(self.wire.published, process)
        process.loop.on_exception = lambda context: self.ledger.broken(
            "defect", f"{process.name}: {context.get('message')} {context.get('exception')!r}"
        )
        return bus

    async def _serve(self, process: SimulatedProcess, stack: AsyncExitStack) -> None:
        process.ready = True
        if process.lives > 1:
            self.disturbed_at = self.simulator.now
        self.simulator.note(process.name, "is ready")
        self.tasks[process] = len(asyncio.all_tasks())
        await process.stopping.wait()
        process.ready = False
        await stack.aclose()

    async def _gateway(self, process: SimulatedProcess) -> None:
        async with AsyncExitStack() as stack:
            requestor = self.requestors[process] = Requestor(self._bus(process), TOPICS, plans=CONFIG.plans)
            await stack.enter_async_context(requestor)
            await self._serve(process, stack)

    async def _model(self, process: SimulatedProcess) -> None:
        flows = self.scenario.flows
        shares = [(flow,) for flow in flows] if self.scenario.apart else [flows]
        services = {
            tuple(ROUTES[flow, TEXT_COMPLETION.name] for flow in share): self._scripted(process, share)
            for share in shares
        }
        async with AsyncExitStack() as stack:
            await self._process_requests(process, stack, self._bus(process), services)

    def _scripted(self, process: SimulatedProcess, flows: tuple[str, ...]) -> ScriptedModel:
        capacity = self.scenario.capacities[self.models.index(process)]
        load = Load(capacity)
        self.loads |= {(process, flow): load for flow in flows}

        def begin(script: Script, turn: str, key: StreamKey) -> Generation:
            generation = self.ledger.begin(process, script, turn, TOPICS.control(self.hosts[process].name), key)
            stream = self.ledger.streams.get(script.name)
            load.began_at["a" if stream is None else stream.asked.flow] = self.simulator.now
            load.look(self.simulator.now)
            load.open.add(generation)
            if len(load.open) > capacity:
                self.ledger.broken("crowded", f"{process.name} works on {len(load.open)} with {capacity} slots")
            self.wire.begun(generation)
            return generation

        return ScriptedModel(capacity, begin, self.simulator.clock)

    async def _prompt(self, process: SimulatedProcess) -> None:
        async with AsyncExitStack() as stack:
            bus = self._bus(process)
            requestor = self.requestors[process] = Requestor(bus, TOPICS)
            await stack.enter_async_context(requestor)
            llm = Client(requestor, ROUTES["a", TEXT_COMPLETION.name])
            service = PromptService(llm, TEMPLATES, time=_standstill)
            await self._process_requests(process, stack, bus, {(ROUTES["a", PROMPT.name],): service})

    async def _agent(self, process: SimulatedProcess) -> None:
        async with AsyncExitStack() as stack:
            bus = self._bus(process)
            requestor = self.requestors[process] = Requestor(bus, TOPICS)
            await stack.enter_async_context(requestor)
            llm = Client(requestor, ROUTES["a", TEXT_COMPLETION.name])
            profile = CONFIG.bound(AgentConfig)["a"]
            model = AgentModel(requestor, llm, profile, PROMPTS)
            service = AgentService(profile, model, (EchoTool(),), {}, load_patterns(profile))
            await self._process_requests(process, stack, bus, {(ROUTES["a", AGENT.name],): service})

    async def _process_requests(
        self,
        process: SimulatedProcess,
        stack: AsyncExitStack,
        bus: SimulatedBus,
        services: Mapping[tuple[Any, ...], Service[Any, Any]],
    ) -> None:
        self.processors[process] = []
        host = self.hosts[process] = await stack.enter_async_context(Host(bus, TOPICS))
        for routes, service in services.items():
            processor = Processor(bus, TOPICS, service, routes, models=("scripted",), grace=2.0, host=host)
            self.processors[process].append(processor)
            await stack.enter_async_context(processor)
        await self._serve(process, stack)

    def ask(self, asked: Asked) -> None:
        """A caller comes to a gateway, if that is there."""
        process = self.gateways[asked.gateway]
        if process.ready:
            process.spawn(lambda: self._call(process, asked))

    async def _call(self, process: SimulatedProcess, asked: Asked) -> None:
        client, request = self._request(self.requestors[process], asked)
        stream = self.ledger.ask(asked, process, self.requestors[process]._inbox.topic)
        try:
            async with asyncio.timeout(asked.stays):
                how = await self._read(stream, client, request)
        except TimeoutError:
            self.ledger.end(stream, "left")
        except TgError as error:
            self.ledger.end(stream, error.type, error.message)
        else:
            self.ledger.end(stream, how)

    async def _read(self, stream: Stream, client: Client[Any, Any], request: Any) -> str:
        asked = stream.asked
        left = asked.leaves_after
        permit = BeginPermit(_permit) if asked.permit else None
        asking = self.requestors[stream.process]
        async with asking.stream(client.route, request, timeout=asked.timeout, permit=permit) as records:
            if left == 0:
                return "left"
            async for record in records:
                if text := _text(record):
                    self.ledger.show(stream, text)
                    if left is not None and (left := left - 1) <= 0:
                        return "left"
                if asked.dawdles:
                    await asyncio.sleep(asked.dawdles)
        return "whole"

    def _request(self, requestor: Requestor, asked: Asked) -> tuple[Client[Any, Any], Any]:
        script = asked.script.line
        match asked.kind:
            case "prompt":
                terms = {"script": encode(script).decode()}
                return Client(requestor, ROUTES["a", PROMPT.name]), PromptRequest("say", terms, streaming=True)
            case "agent":
                return Client(requestor, ROUTES["a", AGENT.name]), AgentRequest(script, streaming=True)
            case kind:
                route = ROUTES[asked.flow, TEXT_COMPLETION.name]
                if asked.routed:
                    route = CONFIG.plans[f"by-{asked.flow}"].entry
                padding = "x" * asked.padding
                streaming, cache_key = kind == "streamed", asked.cache_key
                request = TextCompletionRequest(padding, script, streaming=streaming, cache_key=cache_key)
                return Client(requestor, route), request

    def _taken(self, topic: str, message: Message) -> None:
        if topic == TOPICS.usage:
            for line in message.body.split(b"\n"):
                record = decode(UsageRecord, line)
                self.ledger.recorded[StreamKey(record.stream, record.attempt)].add(record.call)

    def _swallowed(self, message: Message) -> None:
        for name, stream in self.ledger.streams.items():
            if f"name={name} ".encode() in self._request_body(message):
                stream.sign = max(stream.sign, self.simulator.now + SWALLOWED)

    def _request_body(self, message: Message) -> bytes:
        """A request as its requestor has it: the message of a large one has no body."""
        streams = [it._streams.get((message.properties or {}).get("id", "")) for it in self.requestors.values()]
        return message.body or b"".join(stream.body for stream in streams if stream is not None)

    def _died(self, process: SimulatedProcess) -> None:
        self.disturbed_at = self.simulator.now
        self.ended.append((process, self.simulator.now))
        self.processors.pop(process, None)
        self.hosts.pop(process, None)
        self.requestors.pop(process, None)
        for generation in (one for many in self.ledger.generations.values() for one in many):
            if generation.process is process and generation.open:
                generation.open, generation.alive_until = False, self.simulator.now
        for stream in self.ledger.streams.values():
            if stream.process is process and stream.ended is None:
                stream.ended, stream.ended_at = "dead", self.simulator.now

    def _failed(self, process: SimulatedProcess, error: BaseException) -> None:
        """A process that has ended itself is started again, as every orchestrator does."""
        if isinstance(error, TgError) and self.simulator.now < self.scenario.quiet + LAST_RESTART:
            self.simulator.after(RESTART, process.start)
        else:
            self.ledger.broken("defect", f"{process.name} ended with {error!r}")


def _text(record: Any) -> str:
    """The answer's text in a record of any service."""
    if hasattr(record, "chunk_type"):
        return record.content or "" if record.chunk_type == "answer" else ""
    return (record.text if hasattr(record, "text") else record.response) or ""
