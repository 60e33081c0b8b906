"""Command line -> launcher: the parts that a process runs, as plain values without imports of their code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

GATEWAY = "gateway"
PARTS = ("text-completion", "prompt", "agent", GATEWAY)
"""The parts that Tokengrid itself has."""
LOOPBACK = "127.0.0.1"
LogForm = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `tg-serve`; None = the configuration's value.

    Attributes:
        file: the configuration; None = the built-in one.
        only: the parts that this process runs; none = all.
        services: the kinds of the services that a flow may bind, by name, as "module:Class"; `add_services` adds ours,
            and those of the file and of installed packages.
        options: the provider's options for `model`.
        host: the address on which gateway and metrics listen.
        drain: seconds that running streams get to finish on shutdown.
        origins: whose pages may use the gateway.
        key: the SHA-256 of a further key of the gateway, in hex.
        allow_credentials: whether the browsers of these origins may send cookies.
        additional_models: served beside `model`, with its provider and options.
        on_demand: whether all models are served, each loaded for its first request.
        metrics_port: the port of the metrics, for a process without a gateway; of the first of several workers.
        workers: gateway processes that share the port; None = this process itself.
    """

    file: Path | None = None
    only: tuple[str, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    bus: str | None = None
    host: str | None = None
    port: int | None = None
    drain: float | None = None
    metrics_port: int | None = None
    model: str | None = None
    provider: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    origins: tuple[str, ...] | None = None
    key: str | None = None
    allow_credentials: bool | None = None
    additional_models: tuple[str, ...] = ()
    on_demand: bool = False
    workers: int | None = None
    log_form: LogForm = "auto"
    log_level: LogLevel = "info"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that this process runs."""
        return tuple(part for part in (*self.services, GATEWAY) if not self.only or part in self.only)


@dataclass(frozen=True, slots=True)
class PickOptions:
    """The options of `tg-pick`.

    Attributes:
        file: the configuration.
        listen: "host:port"; None = as configured.
        http: "host:port" of the page and the metrics; None = as configured.
        bus: the URL of the bus; None = as configured.
    """

    file: Path
    listen: str | None = None
    http: str | None = None
    bus: str | None = None
    log_form: LogForm = "auto"
    log_level: LogLevel = "info"
