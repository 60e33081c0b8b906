"""What the configuration file says, as frozen values; docs/configuration.md tells it to people.

One TOML file holds it all. Secrets are never in it: it names environment variables and files.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from tg_base.bus.options import BusOptions
from tg_base.route import Route
from tg_schema.service_spec import PROMPT, TEXT_COMPLETION, ServiceSpec
from tg_schema.topics import Topics, resolved

SPECS: dict[str, ServiceSpec[Any, Any]] = {spec.name: spec for spec in (TEXT_COMPLETION, PROMPT)}
"""The services that a flow can bind."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a name that is not known is an error, not a silent nothing."""


class BusConfig(_Section, frozen=True):
    """Which bus, and where on it our topics are."""

    url: str = "memory://"
    namespace: str = "public/default"
    options: BusOptions = BusOptions()


class ApiKey(_Section, frozen=True):
    """Who may come in: a name for logs, and the SHA-256 (hex) of the bearer token."""

    name: str
    sha256: str


class GatewayConfig(_Section, frozen=True):
    """The door."""

    host: str = "127.0.0.1"
    port: int = 8888
    auth: Literal["auto", "on", "off"] = "auto"
    """auto: off on a loopback address without keys, on otherwise. off on another address must be said here."""
    keys: tuple[ApiKey, ...] = ()
    body_limit: int = 1024 * 1024
    request_timeout: float = 300.0
    keep_alive: float = 15.0
    """Seconds of silence after which an SSE comment or a WebSocket ping is sent."""
    drain: float = 10.0


class ModelConfig(_Section, frozen=True):
    """One model: who provides it, and what that provider wants to know."""

    provider: str
    options: dict[str, Any] = {}
    """Read by the provider itself, into its own typed options."""


class ServiceConfig(_Section, frozen=True):
    """One service of a flow. The two topics are the flow's own unless said otherwise (full names or queue ids)."""

    model: str | None = None
    """For text-completion: which model answers."""
    request: str | None = None
    response: str | None = None
    plain: bool = False
    """The processors are the predecessor's: no inbox, no presence."""


class TemplateConfig(_Section, frozen=True):
    """One prompt template."""

    prompt: str
    response_type: Literal["text", "json", "jsonl"] = "text"
    schema: dict[str, Any] | None = None
    """JSON schema of the object (json) or of each line's object (jsonl)."""


class PromptsConfig(_Section, frozen=True):
    """All templates, by id."""

    system: str = ""
    templates: dict[str, TemplateConfig] = {}


class Config(_Section, frozen=True):
    """The whole file."""

    bus: BusConfig = BusConfig()
    gateway: GatewayConfig = GatewayConfig()
    models: dict[str, ModelConfig] = {}
    flows: dict[str, dict[str, ServiceConfig]] = {}
    prompts: PromptsConfig = PromptsConfig()
    source: Path | None = None
    """The file it was read from; set by the reader, never in the file."""

    @property
    def topics(self) -> Topics:
        """The names of our own topics."""
        return Topics(self.bus.namespace)

    def routes(self, service: str) -> tuple[Route[Any, Any], ...]:
        """Every flow's route to one service."""
        flows = self.flows.items()
        return tuple(self._route(flow, service, services[service]) for flow, services in flows if service in services)

    def _route(self, flow: str, service: str, config: ServiceConfig) -> Route[Any, Any]:
        topics = self.topics
        return Route(
            flow,
            SPECS[service],
            resolved(config.request) if config.request else topics.request(flow, service),
            resolved(config.response) if config.response else topics.response(flow, service),
            config.plain,
        )
