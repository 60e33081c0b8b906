"""The shipped configurations -> one Envoy that has a listener for each way to the same model servers."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.picker.extproc.envoy_server import ADMIN, LISTENER, PICKER, SERVERS, shipped_configuration


@dataclass(frozen=True)
class Listener:
    """One way through Envoy.

    Attributes:
        name: of the listener; its clusters begin with it.
        port: where it listens.
        shipped: which of the shipped configurations it is made of.
        picker: the port of the picker; None = none is asked, and the servers take turns.
        streams: requests on one connection to the picker, where another one is opened; None = as shipped.
    """

    name: str
    port: int
    shipped: str = "duplex"
    picker: int | None = None
    streams: int | None = None


def write_listeners(listeners: Sequence[Listener], servers: Sequence[int], admin: int) -> str:
    """JSON for Envoy.

    Args:
        listeners: the ways.
        servers: the ports of the three model servers.
        admin: the port of Envoy's own page.
    """
    parts = [_resources(listener, servers) for listener in listeners]
    address = {"socket_address": {"address": "127.0.0.1", "port_value": admin}}
    kinds = ("listeners", "clusters")
    resources = {kind: [resource for part in parts for resource in part[kind]] for kind in kinds}
    return json.dumps({"admin": {"address": address}, "static_resources": resources})


def _resources(listener: Listener, servers: Sequence[int]) -> dict[str, Any]:
    ports = {
        LISTENER: listener.port,
        ADMIN: 0,
        PICKER: listener.picker or 0,
        **dict(zip(SERVERS, servers, strict=True)),
    }
    text = shipped_configuration(listener.shipped, ports)
    text = re.sub(r"(name|cluster): (clients|picker|servers)\b", rf"\1: {listener.name}-\2", text)
    if listener.streams is not None:
        text = re.sub(r"max_concurrent_streams: \d+", f"max_concurrent_streams: {listener.streams}", text)
    resources: dict[str, Any] = yaml.safe_load(text)["static_resources"]
    if listener.picker is None:
        connections = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        connections["http_filters"] = connections["http_filters"][-1:]
        resources["clusters"] = [each for each in resources["clusters"] if each["name"].endswith("servers")]
    return resources
