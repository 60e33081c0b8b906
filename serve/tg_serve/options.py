"""Command line -> launcher: what a process shall run, in plain values that cost no import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SERVICES: Mapping[str, str] = {
    "text-completion": "tg_flow.providers:TextCompletionKind",
    "prompt": "tg_flow.prompt:PromptKind",
    "agent": "tg_flow.agent:AgentKind",
}
"""By name, where the kind of a service is, "module:Class"; it is imported by a process that runs it."""
GATEWAY = "gateway"
PARTS = (*SERVICES, GATEWAY)
LogForm = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None = as the configuration says.

    Attributes:
        file: the configuration; None = the built-in one.
        parts: what of it this process runs.
        services: those that a flow may bind; as `SERVICES`.
        options: the provider's, for `model`.
        host: what the gateway listens on, and the metrics.
        drain: seconds that running streams get on leaving.
        metrics_port: where to show metrics, for a process without a gateway.
    """

    file: Path | None = None
    parts: tuple[str, ...] = PARTS
    services: Mapping[str, str] = field(default_factory=lambda: SERVICES)
    bus: str | None = None
    host: str | None = None
    port: int | None = None
    drain: float | None = None
    metrics_port: int | None = None
    model: str | None = None
    provider: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    log_form: LogForm = "auto"
    log_level: LogLevel = "info"
