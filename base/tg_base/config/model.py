"""What the configuration file says, as frozen values; docs/configuration.md tells it to people.

One TOML file holds it all. Secrets are never in it: it names environment variables and files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from tg_base.bus import MAX_MESSAGE_BYTES, BusOptions
from tg_base.config.changes import AtStart, Followed
from tg_base.config.toml_positions import Keys, Position
from tg_base.protocol import Route
from tg_schema import ServiceSpec, TgError
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics, resolve_topic

E = TypeVar("E", bound=TgError)
Table = TypeVar("Table", bound="ServiceConfig")

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a name that is not known is an error, not a silent nothing."""


class BusConfig(Section, frozen=True):
    """Which bus, and where on it our topics are."""

    url: str = "memory://"
    namespace: str = "public/default"
    options: BusOptions = BusOptions()


class ApiKey(Section, frozen=True):
    """Who may come in, and how much: limits are for each gateway process, 0 = none."""

    name: str
    """For logs. Tables of one name are one customer with several tokens, and share their limits."""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Of the bearer token, in hex."""
    requests_per_minute: Natural = 0
    streams: Natural = 0
    """Requests that run side by side."""
    tokens_per_minute: Natural = 0
    """Of prompts and answers together, where the provider counts them."""
    groups: tuple[str, ...] | None = None
    """The groups of tools that its requests to agents may name; None = all. One that names none asks for "default"."""


class GatewayConfig(Section, frozen=True):
    """The door."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8888
    auth: Literal["auto", "on", "off"] = "auto"
    """auto: off on a loopback address without keys, on otherwise. off on another address must be said here."""
    keys: Followed[tuple[ApiKey, ...]] = ()
    hosts: Followed[tuple[str, ...]] = ()
    """Further names by which a gateway that asks for no token may be called: a browser's page may know others."""
    aliases: dict[str, str] = {}
    """Further names of models, for protocols that ask by a model's name: name to model, or to "model:adapter"."""
    auth_timeout: Seconds = 10.0
    """Seconds in which a WebSocket must have shown a right token, where one is asked for."""
    max_unauthenticated: Annotated[int, msgspec.Meta(ge=0)] = 128
    """Connections of one address that may not have shown a right token yet, where one is asked for; 0 = any number."""
    reserve_tokens: Followed[Annotated[int, msgspec.Meta(gt=0)]] = 1024
    """What a request without `max_tokens` is taken to need of `tokens_per_minute`, until its usage is known."""
    body_limit: Annotated[int, msgspec.Meta(gt=0, le=MAX_MESSAGE_BYTES)] = 1024 * 1024
    """Bytes of a request; what the bus can carry is the highest."""
    request_timeout: Seconds = 300.0
    """Seconds to the first record of an answer, and of silence between two; it cuts no stream that is in flow."""
    keep_alive: Seconds = 15.0
    """Seconds of silence after which an SSE comment or a WebSocket ping is sent."""
    drain: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds that running streams get when the process is told to stop."""


class ModelConfig(Section, frozen=True):
    """One model: who provides it, and what that provider wants to know."""

    provider: str
    options: dict[str, Any] = {}
    """Read by the provider itself, into its own typed options."""
    queue: AtStart[Natural | None] = None
    """How many requests of one gateway may wait for it; None = a share of the capacity, `tg_base.client.admission`."""


class ServiceConfig(Section, frozen=True):
    """One service of a flow. What all services have stands here; each has a table, and rules, of its own (`services`).

    The two topics are the flow's own unless said otherwise (full names or queue ids).
    """

    spec: ClassVar[ServiceSpec[Any, Any] | None] = None
    """Whose table it is; None = a service that nobody knows."""
    request: str | None = None
    response: str | None = None
    plain: bool = False
    """The processors are the predecessor's: no inbox, no presence."""

    def faults(self, config: "Config", flow: str) -> Iterator[BadRequest]:
        """All that keeps this service of a flow from running, beyond what a single field can tell."""
        yield from ()

    def find_queue(self, config: "Config") -> int | None:
        """How many requests of one requestor may wait for it; None = in proportion to the announced capacity."""
        return None

    @property
    def bound_model(self) -> str | None:
        """The model that a request asks for by asking this; None = it has no model of its own."""
        return None


class TemplateConfig(Section, frozen=True):
    """One prompt template."""

    prompt: str
    system: str | None = None
    """In place of the system template of all."""
    response_type: Literal["text", "json", "jsonl"] = "text"
    schema: dict[str, Any] | None = None
    """JSON schema of the object (json) or of each line's object (jsonl)."""


class PromptsConfig(Section, frozen=True):
    """All templates, by id."""

    system: str = ""
    templates: dict[str, TemplateConfig] = {}


ToolKindName = Literal["prompt", "text-completion", "python", "http", "mcp", "service"]
"""The kinds of tools; `tg_flow.agent.tools` says where each is."""


class ToolConfig(Section, frozen=True):
    """One tool that agents may call."""

    kind: ToolKindName
    description: str = ""
    """What it does, for the model."""
    arguments: dict[str, Any] | None = None
    """JSON schema of the object of arguments; None = as the tool itself says."""
    group: tuple[str, ...] = ("default",)
    """A request's `group` must name one of them, or "*"; "default" where the request names none."""
    applicable_states: tuple[str, ...] = ("*",)
    """In which states of the dialog it can be called; "*" = in all."""
    state: str | None = None
    """The dialog's state after a call; None = as before."""
    timeout: Seconds = 30.0
    options: dict[str, Any] = {}
    """Read by the kind of tool itself, into its own typed options."""


class Source(msgspec.Struct, frozen=True):
    """The file that a configuration was read from, and where in it each key stands."""

    file: Path
    places: dict[Keys, Position] = {}
    services: tuple[type[ServiceConfig], ...] = ()
    """Those that a flow of it may bind."""

    def where(self, *keys: str, line: int = 0) -> str:
        """`FILE, line N` of a value, or of one line (from 1) of a text of several lines."""
        while keys and keys not in self.places:
            keys, line = keys[:-1], 0
        place = self.places.get(keys)
        if place is None:
            return str(self.file)
        return f"{self.file}, line {place.text + line - 1 if line and place.text else place.line}"


class Config(Section, frozen=True):
    """The whole file. What is `Followed` may change while a process runs; the rest is read when it starts."""

    bus: BusConfig = BusConfig()
    gateway: GatewayConfig = GatewayConfig()
    models: Followed[dict[str, ModelConfig]] = {}
    flows: dict[str, dict[str, ServiceConfig]] = {}
    prompts: Followed[PromptsConfig] = PromptsConfig()
    tools: dict[str, ToolConfig] = {}
    source: Source | None = None
    """The file it was read from; set by the reader, never in the file. None = the built-in default."""

    def where(self, *keys: str, line: int = 0) -> str:
        """How an error names the place of a value: `FILE, line N`, or its keys where there is no file."""
        return ".".join(keys) if self.source is None else self.source.where(*keys, line=line)

    def fault(self, sentence: str, *keys: str) -> BadRequest:
        """What is wrong with a value, with its place before it."""
        return BadRequest(f"{self.where(*keys)}: {sentence}").at(*keys)

    def locate(self, error: E, *table: str, otherwise: tuple[str, ...] = ()) -> E:
        """The same error with its place in the file before it.

        Args:
            error: `option` says what of the table it blames.
            table: the keys of the table.
            otherwise: what of the table to name where that does not stand in the file.
        """
        keys = (*table, *error.option)
        if self.source is not None and (not error.option or keys not in self.source.places):
            keys = (*table, *otherwise)
        return type(error)(f"{self.where(*keys)}: {error.message}", retry_after=error.retry_after)

    @property
    def topics(self) -> Topics:
        """The names of our own topics."""
        return Topics(self.bus.namespace)

    def bound(self, table: type[Table]) -> dict[str, Table]:
        """By flow, what the flows say that bind one kind of service."""
        name = table.spec.name if table.spec is not None else ""
        found = {flow: services.get(name) for flow, services in self.flows.items()}
        return {flow: said for flow, said in found.items() if isinstance(said, table)}

    def routes(self, service: str) -> tuple[Route[Any, Any], ...]:
        """Every flow's route to one service."""
        bound = ((flow, services[service]) for flow, services in self.flows.items() if service in services)
        return tuple(self._route(flow, said.spec, said) for flow, said in bound if said.spec is not None)

    @property
    def all_routes(self) -> tuple[Route[Any, Any], ...]:
        """Every flow's route to each of its services."""
        names = dict.fromkeys(service for services in self.flows.values() for service in services)
        return tuple(route for name in names for route in self.routes(name))

    def _route(self, flow: str, spec: ServiceSpec[Any, Any], said: ServiceConfig) -> Route[Any, Any]:
        topics = self.topics
        return Route(
            flow,
            spec,
            resolve_topic(said.request) if said.request else topics.request(flow, spec.name),
            resolve_topic(said.response) if said.response else topics.response(flow, spec.name),
            said.plain,
            said.find_queue(self),
            said.bound_model,
        )
