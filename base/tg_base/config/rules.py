"""Config -> errors that no single field shows: references between tables, and names that become topics."""

import re
from collections.abc import Iterator

import msgspec

from tg_base.config.model import SERVICE_KINDS, TOOL_KINDS, ApiKey, Config, ServiceConfig
from tg_base.config.services import TextCompletionConfig, find_reached
from tg_base.config.table_reader import advise
from tg_base.runtime import find_entry_points
from tg_schema.agent import DEFAULT_GROUP
from tg_schema.errors import BadRequest
from tg_schema.topics import FLOW_NAME, resolve_topic

LIMITS = ("requests_per_minute", "streams", "tokens_per_minute", "groups", "admin", "store")
"""The fields of an API key that all keys of one name must share."""
# OpenAI takes no other names of functions.
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def faults(config: Config) -> Iterator[BadRequest]:
    """All errors of a configuration, each with its position and remedy."""
    yield from _faults_of_keys(config)
    yield from _faults_of_names(config)
    yield from _faults_of_routes(config)
    yield from foreign_faults(config)
    for flow, services in config.flows.items():
        if not FLOW_NAME.fullmatch(flow):
            yield config.fault("a flow's name may have letters, digits, and . _ - only", "flows", flow)
        if not services and not config.completes(flow):
            advice = 'text-completion = { model = "NAME" }'
            yield config.fault(f'flow "{flow}" has no service to ask; add one, for instance {advice}', "flows", flow)
        for service, bound in services.items():
            yield from _faults_of_service(config, flow, service, bound)
    for name, tool in config.tools.items():
        yield from config.find_unoffered(TOOL_KINDS, tool.kind, "kind of tool", "module:Class", "tools", name, "kind")
        if not _TOOL.fullmatch(name):
            yield config.fault("a tool's name may have letters, digits, _ and - only", "tools", name)


def sound_part(config: Config) -> Config:
    """The configuration without invalid flows, routes and tools, and without those that depend on them."""
    # Repeated, because removing a flow invalidates the supervisors that call its agent.
    while wrong := {fault.option[:2] for fault in faults(config) if fault.option[0] != "gateway"}:
        flows = {name: flow for name, flow in config.flows.items() if ("flows", name) not in wrong}
        tools = {name: tool for name, tool in config.tools.items() if ("tools", name) not in wrong}
        routes = {name: route for name, route in config.model_routes.items() if ("routes", name) not in wrong}
        config = msgspec.structs.replace(config, flows=flows, tools=tools, model_routes=routes)
    return config


def foreign_fields(services: tuple[type[ServiceConfig], ...], table: type[ServiceConfig]) -> set[str]:
    """The fields that other services have and this one lacks."""
    return {field for other in services for field in other.__struct_fields__} - set(table.__struct_fields__)


def foreign_faults(config: Config) -> Iterator[BadRequest]:
    """Errors for fields in the table of one service that only other services have."""
    for keys in config.source.places if config.source is not None else ():
        match keys:
            case ("flows", flow, service, field):
                bound = config.flows.get(flow, {}).get(service)
                owners = _list_services(config, field)
                if bound is not None and bound.spec is not None and owners and bound.spec.name not in owners:
                    yield config.fault(_describe_owners(field, owners), *keys)
            case _:
                pass


def _faults_of_keys(config: Config) -> Iterator[BadRequest]:
    first: dict[str, ApiKey] = {}
    owners: dict[str, str] = {}
    for index, key in enumerate(config.gateway.keys):
        # One token would have the name and the limits of the last of its tables.
        if (owner := owners.setdefault(key.sha256, key.name)) != key.name:
            where = ("gateway", "keys", str(index), "sha256")
            yield config.fault(f'the key "{owner}" has this token already; give "{key.name}" one of its own', *where)
        other = first.setdefault(key.name, key)
        for field in LIMITS:
            if getattr(key, field) != getattr(other, field):
                where = ("gateway", "keys", str(index), field)
                yield config.fault(f'keys named "{key.name}" share their limits; give each the same {field}', *where)


def _faults_of_names(config: Config) -> Iterator[BadRequest]:
    """The gateway's tables by names of models and of groups: each must lead somewhere."""
    gateway, groups = config.gateway, {group for tool in config.tools.values() for group in tool.group}
    for index, key in enumerate(gateway.keys):
        for place, group in enumerate(key.groups or ()):
            if groups and group not in {*groups, DEFAULT_GROUP, "*"}:
                where = ("gateway", "keys", str(index), "groups", str(place))
                yield config.fault(f'no tool is in the group "{group}"; known are {", ".join(sorted(groups))}', *where)
    models = {bound.model for bound in config.bound(TextCompletionConfig).values()}
    # The file does not have the models of the command line, of TrustGraph's processors and of announced flows; and a
    # file without flows is only a part of a configuration.
    completed = config.source is not None and config.source.completed
    if not models or None in models or completed or gateway.announced:
        return
    models |= config.model_routes.keys()
    known = ", ".join(sorted(filter(None, models)))
    meant = [(("aliases", alias), name) for alias, name in gateway.aliases.items()]
    for keys, name in (
        *meant,
        *(
            ((door, "models", name), name)
            for door, table in gateway.doors.items()
            for name in getattr(table, "models", ())
        ),
    ):
        base = name.rpartition(":")[0]
        if models.isdisjoint({name, base, gateway.aliases.get(base)}):
            sentence = f'no flow has the model "{name}"; name one of them ({known}), or MODEL:ADAPTER'
            yield config.fault(sentence, "gateway", *keys)


def _faults_of_service(config: Config, flow: str, service: str, bound: ServiceConfig) -> Iterator[BadRequest]:
    keys = ("flows", flow, service)
    if bound.spec is None:
        installed = find_entry_points(SERVICE_KINDS).names
        advice = advise(service, sorted({*_list_services(config), *installed}))
        known = f'the process was started without the service "{service}"; restart it'
        yield config.fault(known if service in installed else f'there is no service "{service}"; {advice}', *keys)
        return
    for field, topic in (("request", bound.request), ("response", bound.response)):
        yield from _faults_of_topic(config, (*keys, field), topic)
    yield from bound.faults(config, flow)


def _describe_owners(field: str, owners: list[str]) -> str:
    if len(owners) == 1:
        return f"only {owners[0]} has {field}; remove it here"
    return f"only {', '.join(owners[:-1])} and {owners[-1]} have a {field}; remove it"


def _list_services(config: Config, field: str | None = None) -> list[str]:
    """The names of all services, or of those that have a field."""
    services = config.source.services if config.source is not None else ()
    found = (each for each in services if field is None or field in each.__struct_fields__)
    return [each.spec.name for each in found if each.spec is not None]


def _faults_of_topic(config: Config, keys: tuple[str, ...], topic: str | None) -> Iterator[BadRequest]:
    try:
        if topic is not None:
            resolve_topic(topic)
    except ValueError:
        example = 'write a topic ("persistent://tenant/namespace/name") or a queue id ("request:tg:name")'
        yield config.fault(example, *keys)


def _faults_of_routes(config: Config) -> Iterator[BadRequest]:
    """Names that lead nowhere, in a circle, or to two things."""
    models = {bound.model for bound in config.bound(TextCompletionConfig).values() if not bound.plain}
    models -= config.model_routes.keys()
    known = models if config.source is None or not config.source.completed else None
    for name, table in config.model_routes.items():
        if name in config.models or name in config.gateway.aliases:
            what = "a model" if name in config.models else "an alias"
            yield config.fault(f'"{name}" is the name of {what} too; rename one of them', "routes", name)
        if bool(table.models) == bool(table.weights):
            yield config.fault(f'route "{name}" needs either models or weights; write one of them', "routes", name)
        for place, member in enumerate(table.members):
            keys = ("models", str(place)) if table.models else ("weights", member)
            if sentence := _find_fault(config, name, member, known):
                yield config.fault(sentence, "routes", name, *keys)
        if table.shadow is not None and known is not None and table.shadow not in known:
            yield config.fault(_unknown(table.shadow, known), "routes", name, "shadow")


def _find_fault(config: Config, name: str, member: str, known: set[str | None] | None) -> str:
    routes = config.model_routes
    if member in routes:
        reached = find_reached(member, {route: table.members for route, table in routes.items()})
        return f'the routes "{name}" and "{member}" lead to each other in a circle' if name in reached else ""
    if routes[name].models.count(member) > 1:
        return f'"{member}" is there twice; a request asks each model once'
    return _unknown(member, known) if known is not None and member not in known else ""


def _unknown(model: str, known: set[str | None]) -> str:
    listed = ", ".join(sorted(filter(None, known))) or "none"
    return f'no flow has the model "{model}"; known are {listed}. Add [flows.NAME] text-completion.model = "{model}"'
