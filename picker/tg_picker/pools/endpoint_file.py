"""llm-d's and AIBrix's files of endpoints -> hosts."""

from pathlib import Path

from msgspec import Struct

from tg_base.config import read_text
from tg_picker.pools.host import Host, is_host, is_ip, join_address, parse_port, split_address
from tg_picker.pools.kinds import Name
from tg_picker.pools.resource import convert
from tg_picker.pools.yaml_document import YamlDocument, parse_yaml
from tg_schema.errors import BadRequest

MODEL_LABEL = "model.aibrix.ai/name"
"""The label that AIBrix gives to a model's servers. We set it too, to the first model of an address."""

_NO_IP = "is a name, but Envoy only takes IP addresses; write one, or put the name into `names` of the configuration"


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    address: Name
    port: int | str
    namespace: Name = "default"
    labels: dict[str, str] = {}


class _EndpointList(Struct, frozen=True, forbid_unknown_fields=True):
    endpoints: tuple[_Entry, ...]


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    endpoints: tuple[str, ...]


class _ModelList(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[_Model, ...]


def read_endpoint_file(file: Path, *, ip_only: bool) -> tuple[Host, ...]:
    """The hosts of a file.

    Args:
        file: the file.
        ip_only: whether a name in place of an IP address is refused.

    Raises:
        BadRequest: it cannot be read, or has neither format; with line and column.
    """
    return parse_endpoint_file(read_text(file, "endpoint"), file, ip_only=ip_only)


def parse_endpoint_file(text: str, file: Path, *, ip_only: bool = False) -> tuple[Host, ...]:
    """The hosts in a file's text. llm-d's format has the key `endpoints`, AIBrix's the key `models`.

    Raises:
        BadRequest: it has neither format, or contains an address or a name twice.
    """
    documents = parse_yaml(text, file)
    if len(documents) != 1:
        raise BadRequest(f"{file}: needs one document with the key endpoints or models, not {len(documents)}")
    data = documents[0].data
    if isinstance(data, dict) and "models" in data:
        return _read_models(documents[0], convert(documents[0], data, _ModelList), ip_only)
    return _read_endpoints(documents[0], convert(documents[0], data, _EndpointList), ip_only)


def _read_endpoints(document: YamlDocument, read: _EndpointList, ip_only: bool) -> tuple[Host, ...]:
    hosts: dict[str, Host] = {}
    names: set[str] = set()
    for at, entry in enumerate(read.endpoints):
        keys = ("endpoints", str(at))
        if not (is_ip(entry.address) or is_host(entry.address)):
            sentence = f'"{entry.address}" is no IP address or host name; write the port and the scheme elsewhere'
            raise document.fault(sentence, *keys, "address")
        if ip_only and not is_ip(entry.address):
            raise document.fault(f"{entry.address} {_NO_IP}", *keys, "address")
        # llm-d writes ports as text.
        port = parse_port(str(entry.port))
        if port is None:
            raise document.fault(f"port must be a whole number from 1 to 65535, not {entry.port}", *keys, "port")
        name = entry.name if entry.namespace == "default" else f"{entry.namespace}/{entry.name}"
        if name in names:
            raise document.fault(f'the name "{name}" is used twice; rename one', *keys, "name")
        place = join_address(entry.address, port)
        if place in hosts:
            raise document.fault(f"{place} is there twice; keep one", *keys, "address")
        names.add(name)
        hosts[place] = Host(entry.address, (port,), name, entry.labels)
    return tuple(hosts.values())


def _read_models(document: YamlDocument, read: _ModelList, ip_only: bool) -> tuple[Host, ...]:
    served: dict[tuple[str, int], list[str]] = {}
    for at, model in enumerate(read.models):
        for number, endpoint in enumerate(model.endpoints):
            place = split_address(endpoint)
            keys = ("models", str(at), "endpoints", str(number))
            if place is None:
                raise document.fault(f'"{endpoint}" must be HOST:PORT, without a scheme or path', *keys)
            if ip_only and not is_ip(place[0]):
                raise document.fault(f"{place[0]} {_NO_IP}", *keys)
            names = served.setdefault(place, [])
            if model.name in names:
                raise document.fault(f"{endpoint} serves {model.name} already; keep one", *keys)
            names.append(model.name)
    return tuple(
        Host(address, (port,), labels={MODEL_LABEL: names[0]}, models=tuple(names))
        for (address, port), names in served.items()
    )
