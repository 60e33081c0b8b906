"""The configuration file as frozen values; docs/configuration.md describes it for operators.

All settings are in one TOML file. It contains no secrets, only names of environment variables and files.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from tg_base.bus import MAX_MESSAGE_BYTES, BusOptions
from tg_base.config.changes import SET_BY_READER, AtStart, Followed
from tg_base.config.route_config import RouteConfig, make_plans
from tg_base.config.toml_positions import Keys, Position
from tg_base.protocol import MAX_REQUEST_BYTES, Route, RoutePlan
from tg_base.runtime import find_entry_point
from tg_schema import TEXT_COMPLETION, ServiceSpec, TgError
from tg_schema.agent import DEFAULT_GROUP
from tg_schema.errors import BadRequest, NotFound
from tg_schema.topics import Topics, resolve_topic

E = TypeVar("E", bound=TgError)
Table = TypeVar("Table", bound="ServiceConfig")
Door = TypeVar("Door", bound=msgspec.Struct)

MAX_SECONDS = 365 * 86_400
"""Maximum of a duration in seconds, a year: timers fail with infinity, and with numbers near it."""
Seconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Attach = Literal["same-body"]
Dollars = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; an unknown field is an error, so that a typo is not ignored."""


class BusConfig(Section, frozen=True):
    """The bus, and the namespace of our topics on it."""

    url: str = "memory://"
    namespace: str = "public/default"
    options: BusOptions = BusOptions()


class ApiKey(Section, frozen=True):
    """One API key and its limits, which each gateway process enforces by itself; 0 = unlimited."""

    name: str
    """For logs. Tables with the same name are one customer with several tokens, and share their limits."""
    sha256: Annotated[
        str,
        msgspec.Meta(pattern="^[0-9a-f]{64}$", description="the token's SHA-256, as sha256sum prints it: 64 digits"),
    ]
    """SHA-256 of the bearer token, in hex."""
    requests_per_minute: Natural = 0
    streams: Natural = 0
    """Concurrent requests."""
    tokens_per_minute: Natural = 0
    """Tokens of prompts and answers together: estimated at first, then as the provider counts them."""
    groups: tuple[str, ...] | None = None
    """Groups of tools that agent requests may name; None = all. A request without a group names "default"."""
    admin: bool = False
    """Whether it may read `/metrics` and `/instances`, see all usage, and load and unload adapters."""
    store: bool = True
    """Whether responses may be kept for it."""
    attach: Attach | None = None
    """The same as the `attach` of a service."""
    customer: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    """The customer who is charged for its requests, unless a request names one by `user`. For usage alone, like the
    tags."""
    tags: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], ...], msgspec.Meta(max_length=16)
    ] = ()


class GatewayConfig(Section, frozen=True):
    """The HTTP and WebSocket gateway."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8888
    auth: Literal["auto", "on", "off"] = "auto"
    """auto = off on a loopback address without keys, on otherwise. Only an explicit "off" opens another address."""
    keys: Followed[tuple[ApiKey, ...]] = ()
    hosts: Followed[tuple[str, ...]] = ()
    """Further `Host` names accepted without authentication; others are refused, against DNS rebinding by a web page."""
    origins: Followed[tuple[str, ...]] = ()
    """Origins, as "https://app.example", whose pages may use the gateway from a browser (CORS); "*" = of all."""
    allow_credentials: Followed[bool] = False
    """Whether browsers of these origins may send credentials such as cookies, which a proxy may require; not with
    "*"."""
    aliases: Followed[dict[str, str]] = {}
    """Additional names: name -> model, "model:adapter", or route."""
    announced: Followed[bool] = False
    """Whether models that processors announce under flows that no file names can be asked too."""
    auth_timeout: Seconds = 10.0
    """Seconds within which a WebSocket must authenticate, if authentication is on."""
    max_unauthenticated: Annotated[int, msgspec.Meta(ge=0)] = 128
    """Unauthenticated connections per client address, if authentication is on; 0 = unlimited."""
    reserve_tokens: Followed[Annotated[int, msgspec.Meta(gt=0)]] = 1024
    """Tokens of `tokens_per_minute` reserved for an answer without `max_tokens`, until its usage is known."""
    body_limit: Annotated[int, msgspec.Meta(gt=0, le=MAX_MESSAGE_BYTES)] = 1024 * 1024
    """Maximum bytes of a request; one message of the bus is the upper limit."""
    large_body_limit: Annotated[int, msgspec.Meta(gt=0, le=MAX_REQUEST_BYTES)] = 32 * 1024 * 1024
    """The same for the doors of other APIs (mounts with `large`), whose conversations carry images and files."""
    large_bodies: Annotated[int, msgspec.Meta(gt=0)] = 128 * 1024 * 1024
    """Bytes that bodies above `body_limit` may have together, for each key; one alone may exceed it."""
    request_timeout: Seconds = 300.0
    """Seconds to the first record of an answer and between two records; the duration of a stream is not limited."""
    keep_alive: Seconds = 15.0
    """Seconds of silence after which an SSE comment or a WebSocket ping is sent."""
    drain: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 10.0
    """Seconds that running streams get to finish on shutdown."""
    max_wait: Annotated[float, msgspec.Meta(ge=0, le=7 * 86_400)] = 0.0
    """Seconds that responses of the tier "flex" may wait on the bus until their model has capacity; 0 = none waits."""
    default_max_attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    """How often a model may be asked for a response that waits, if its request has no `max_attempts`."""
    store: Followed[bool] = True
    """Whether responses of the Responses API may be kept; keys can be excepted."""
    docs: bool = True
    """Whether `/docs` and `/openapi.json` are served, to everybody and without a key."""
    page: bool = True
    """Whether `/` shows the gateway's own page to browsers, to everybody and without a key."""
    doors: Annotated[dict[str, msgspec.Struct], SET_BY_READER] = {}
    """The tables `[gateway.NAME]` of doors, each of the type that its package declares; see `door`."""

    def door(self, kind: type[Door]) -> Door:
        """The table of a door: from the file, or else with its defaults."""
        return next((table for table in self.doors.values() if isinstance(table, kind)), kind())


class ModelConfig(Section, frozen=True):
    """One model: its provider and the provider's options."""

    provider: str
    options: dict[str, Any] = {}
    """Read by the provider itself, into its own typed options."""
    on_demand: bool = False
    """The model is loaded for its first request, and unloaded when none has used it for `unload_after` seconds."""
    unload_after: Seconds = 300.0
    lazy: bool = False
    """The model is opened for its first request, and stays."""
    queue: AtStart[Natural | None] = None
    """Queued requests per gateway; None = in proportion to the capacity, see `tg_base.client.admission`."""


class ServiceConfig(Section, frozen=True):
    """One service of a flow: the fields of all services. Each service derives its own table and rules (`services`).

    `request` and `response` are topics (full names or queue ids); None = the flow's own.
    """

    spec: ClassVar[ServiceSpec[Any, Any] | None] = None
    """The service of this table; None = an unknown one."""
    awaited: ClassVar[bool] = True
    """Whether a gateway is ready only once this service is there."""
    followed: ClassVar[bool] = True
    """Whether an edit of these tables starts, changes and ends processors; otherwise that needs a restart."""
    request: str | None = None
    response: str | None = None
    plain: bool = False
    """The processors are TrustGraph's: they have no inbox and send no heartbeats."""
    keep: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 0
    """Seconds for which this service's streams are kept even if no client asks for that; 0 = they are not kept."""
    attach: Attach | None = None
    """Which requests without an `Idempotency-Key` get the answer of an earlier request whose client has left."""

    def faults(self, config: "Config", flow: str) -> Iterator[BadRequest]:
        """The errors of this service of a flow that no single field shows, for instance a missing model."""
        yield from ()

    def find_queue(self, config: "Config") -> int | None:
        """Queued requests per requestor; None = in proportion to the announced capacity."""
        return None

    @property
    def bound_model(self) -> str | None:
        """The model that this service binds; None = it has none of its own."""
        return None


class TemplateConfig(Section, frozen=True):
    """One prompt template."""

    prompt: str
    system: str | None = None
    """Replaces the system template of `[prompts]`."""
    response_type: Literal["text", "json", "jsonl"] = "text"
    schema: dict[str, Any] | None = None
    """JSON schema of the answer (json) or of each of its lines (jsonl)."""


class PromptsConfig(Section, frozen=True):
    """All templates, by id."""

    system: str = ""
    templates: dict[str, TemplateConfig] = {}


DOOR_TABLES = "tokengrid.door_tables"
"""The group of entry points with which doors declare their tables of `[gateway]`, each under the door's name."""
TOOL_KINDS = "tokengrid.tool_kinds"
"""The group of entry points with which packages offer kinds of tools, ours and others' alike."""
SERVICE_KINDS = "tokengrid.services"
"""The group of entry points with which packages offer services, each under the name in its kind's `ServiceSpec`."""


class TracesConfig(Section, frozen=True):
    """The export of spans to an OpenTelemetry collector, by OTLP over HTTP."""

    endpoint: str | None = None
    """URL of the collector, such as "http://localhost:4318"; None = as `OTEL_EXPORTER_OTLP_ENDPOINT` says, or none."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Share of the traces that begin here which are exported; those that a caller marks as sampled always are."""


class ToolConfig(Section, frozen=True):
    """One tool that agents may call."""

    kind: str
    description: str = ""
    """What the tool does; sent to the model."""
    arguments: dict[str, Any] | None = None
    """JSON schema of the arguments object; None = the tool's own."""
    group: tuple[str, ...] = (DEFAULT_GROUP,)
    """A request gets the tool if its `group` names one of these, or "*"; a request without a group has "default"."""
    applicable_states: tuple[str, ...] = ("*",)
    """The dialog states in which the tool is available; "*" = all."""
    state: str | None = None
    """The dialog's state after a call; None = unchanged."""
    timeout: Seconds = 30.0
    options: dict[str, Any] = {}
    """Read by the kind of tool itself, into its own typed options."""


class PriceConfig(Section, frozen=True):
    """The price of one model, in dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    """The price of prompt tokens that are read from the provider's cache; None = as `input`."""
    cache_write: Dollars | None = None
    """The price of prompt tokens that are written into that cache; None = as `input`."""


class Source(msgspec.Struct, frozen=True):
    """The file of a configuration, and the position of each key in it."""

    file: Path
    places: dict[Keys, Position] = {}
    services: tuple[type[ServiceConfig], ...] = ()
    """The services that its flows may bind."""
    completed: tuple[str, ...] = ()
    """Flows whose model the command line names, so that the file need not."""

    def where(self, *keys: str, line: int = 0) -> str:
        """`FILE, line N` of a value, or of one line (counted from 1) of a multi-line string."""
        # A value that is missing has no position; the nearest table above it is where it should be added.
        while keys and keys not in self.places:
            keys, line = keys[:-1], 0
        place = self.places.get(keys)
        if place is None:
            return str(self.file)
        return f"{self.file}, line {place.text + line - 1 if line and place.text else place.line}"


class Config(Section, frozen=True):
    """The whole file. Edits of `Followed` fields take effect while a process runs; the rest is read at its start."""

    bus: BusConfig = BusConfig()
    gateway: GatewayConfig = GatewayConfig()
    models: Followed[dict[str, ModelConfig]] = {}
    model_routes: Followed[dict[str, RouteConfig]] = msgspec.field(name="routes", default_factory=dict)
    services: dict[str, str] = {}
    """Further services that flows may bind, by name: their kinds, as "module:Class"."""
    flows: Followed[dict[str, dict[str, ServiceConfig]]] = {}
    prompts: Followed[PromptsConfig] = PromptsConfig()
    prices: Followed[dict[str, PriceConfig]] = {}
    """Prices by the name of a model, here or at its provider. They override the known prices of providers."""
    traces: TracesConfig = TracesConfig()
    tools: Followed[dict[str, ToolConfig]] = {}
    source: Annotated[Source | None, SET_BY_READER] = None
    """The file it was read from. None = the built-in default."""

    def where(self, *keys: str, line: int = 0) -> str:
        """The position of a value for an error: `FILE, line N`, or its keys if there is no file."""
        return ".".join(keys) if self.source is None else self.source.where(*keys, line=line)

    def completes(self, flow: str) -> bool:
        """Whether the command line gives this flow a model."""
        return self.source is not None and flow in self.source.completed

    def fault(self, sentence: str, *keys: str) -> BadRequest:
        """The error about a value, prefixed with its position."""
        return BadRequest(f"{self.where(*keys)}: {sentence}").at(*keys)

    def find_unoffered(self, group: str, name: str, what: str, place: str, *keys: str) -> Iterator[BadRequest]:
        """The error about a name that no installed package offers; the arguments are those of `find_entry_point`."""
        try:
            find_entry_point(group, name, what, place)
        except NotFound as error:
            yield self.fault(error.message, *keys)

    def locate(self, error: E, *table: str, otherwise: tuple[str, ...] = ()) -> E:
        """The same error, prefixed with its position in the file.

        Args:
            error: its `option` has the keys of the wrong value within the table.
            table: the keys of the table.
            otherwise: the keys within the table to name instead if that value is not in the file.
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
        """The tables of one kind of service, by flow."""
        name = table.spec.name if table.spec is not None else ""
        found = {flow: services.get(name) for flow, services in self.flows.items()}
        return {flow: service for flow, service in found.items() if isinstance(service, table)}

    def routes(self, service: str) -> tuple[Route[Any, Any], ...]:
        """The routes of all flows to one service."""
        bound = ((flow, services[service]) for flow, services in self.flows.items() if service in services)
        return tuple(self._route(flow, service.spec, service) for flow, service in bound if service.spec is not None)

    @property
    def all_routes(self) -> tuple[Route[Any, Any], ...]:
        """The routes of all flows to each of their services."""
        names = dict.fromkeys(service for services in self.flows.values() for service in services)
        return tuple(route for name in names for route in self.routes(name))

    @property
    def plans(self) -> dict[str, RoutePlan]:
        """The routes that lead to a model, by name."""
        return make_plans(self.model_routes, self._find_queues()) if self.model_routes else {}

    def _find_queues(self) -> dict[str, Route[Any, Any]]:
        """A queue of each model that a flow binds to processors of ours."""
        spec, found = TEXT_COMPLETION, dict[str, Route[Any, Any]]()
        for flow, services in self.flows.items():
            bound = services.get(spec.name)
            if bound is not None and not bound.plain and bound.bound_model not in {None, *self.model_routes}:
                found.setdefault(bound.bound_model or "", self._route(flow, spec, bound))
        return found

    def _route(self, flow: str, spec: ServiceSpec[Any, Any], service: ServiceConfig) -> Route[Any, Any]:
        topics, keep, attach = self.topics, f"{service.keep}s" if service.keep else None, service.attach is not None
        if service.bound_model in self.model_routes and service.bound_model in (plans := self.plans):
            return dataclasses.replace(plans[service.bound_model].entry, flow=flow, keep=keep, attach=attach)
        return Route(
            flow,
            spec,
            resolve_topic(service.request) if service.request else topics.request(flow, spec.name),
            resolve_topic(service.response) if service.response else topics.response(flow, spec.name),
            service.plain,
            service.find_queue(self),
            service.bound_model,
            keep=keep,
            attach=attach,
        )
