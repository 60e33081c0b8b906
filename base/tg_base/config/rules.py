"""Config -> what no single field can tell: references between tables, and names that become topics."""

import re
from collections.abc import Iterator

import msgspec

from tg_base.config.model import SPECS, ApiKey, Config, ServiceConfig
from tg_schema import AGENT, PROMPT, TEXT_COMPLETION
from tg_schema.errors import BadRequest
from tg_schema.topics import resolve_topic

_FLOW = re.compile(r"[A-Za-z0-9._-]{1,100}")
LIMITS = ("requests_per_minute", "streams", "tokens_per_minute", "groups")
"""Fields of a key."""
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_AGENTS = ("description", "pattern", "tools", "agents", "calling", "instructions", "limits")


def faults(config: Config) -> Iterator[BadRequest]:
    """All that keeps a configuration from running, each with its place and what to do."""
    yield from _faults_of_keys(config)
    for flow, services in config.flows.items():
        if not _FLOW.fullmatch(flow):
            yield _wrong(config, ("flows", flow), "a flow's name may have letters, digits, and . _ - only")
        for service, bound in services.items():
            yield from _faults_of_service(config, flow, service, bound)
    for name in config.tools:
        if not _TOOL.fullmatch(name):
            yield _wrong(config, ("tools", name), "a tool's name may have letters, digits, _ and - only")


def sound_part(config: Config) -> Config:
    """Without the flows and tools that are wrong, and without what needs them: the rest could run."""
    while wrong := {fault.option[:2] for fault in faults(config) if fault.option[0] != "gateway"}:
        flows = {name: flow for name, flow in config.flows.items() if ("flows", name) not in wrong}
        tools = {name: tool for name, tool in config.tools.items() if ("tools", name) not in wrong}
        config = msgspec.structs.replace(config, flows=flows, tools=tools)
    return config


def _faults_of_keys(config: Config) -> Iterator[BadRequest]:
    first: dict[str, ApiKey] = {}
    for index, key in enumerate(config.gateway.keys):
        other = first.setdefault(key.name, key)
        for field in LIMITS:
            if getattr(key, field) != getattr(other, field):
                where = ("gateway", "keys", str(index), field)
                yield _wrong(config, where, f'keys named "{key.name}" share their limits; give each the same {field}')


def _faults_of_service(config: Config, flow: str, service: str, bound: ServiceConfig) -> Iterator[BadRequest]:
    keys = ("flows", flow, service)
    if service not in SPECS:
        yield _wrong(config, keys, f'there is no service "{service}"; known are {", ".join(sorted(SPECS))}')
        return
    for field, topic in (("request", bound.request), ("response", bound.response)):
        yield from _faults_of_topic(config, (*keys, field), topic)
    if service == TEXT_COMPLETION.name:
        yield from _faults_of_model(config, keys, bound)
    elif service == AGENT.name:
        yield from _faults_of_agent(config, flow, bound)
    elif bound.model is not None:
        yield _wrong(config, (*keys, "model"), f"only {TEXT_COMPLETION.name} and {AGENT.name} have a model; remove it")
    if service != AGENT.name:
        yield from _faults_of_no_agent(config, keys, bound)
    if service == PROMPT.name and not bound.plain and TEXT_COMPLETION.name not in config.flows[flow]:
        yield _wrong(config, keys, f'flow "{flow}" has prompts but no {TEXT_COMPLETION.name} to answer them; add it')


def _faults_of_model(config: Config, keys: tuple[str, ...], bound: ServiceConfig) -> Iterator[BadRequest]:
    if bound.plain:
        return
    if bound.model is None:
        yield _wrong(config, keys, f'{TEXT_COMPLETION.name} needs a model: model = "NAME" of a table [models.NAME]')
    elif bound.model not in config.models:
        known = ", ".join(sorted(config.models)) or "none"
        sentence = f'there is no model "{bound.model}"; known are {known}. Add a table [models.{bound.model}]'
        yield _wrong(config, (*keys, "model"), sentence)


def _faults_of_no_agent(config: Config, keys: tuple[str, ...], bound: ServiceConfig) -> Iterator[BadRequest]:
    plain = ServiceConfig()
    for field in _OF_AGENTS:
        if getattr(bound, field) != getattr(plain, field):
            yield _wrong(config, (*keys, field), f"only {AGENT.name} has {field}; remove it here")


def _faults_of_agent(config: Config, flow: str, bound: ServiceConfig) -> Iterator[BadRequest]:
    keys = ("flows", flow, AGENT.name)
    if bound.plain:
        return
    bound_models = {services[TEXT_COMPLETION.name].model for services in config.flows.values() if _completes(services)}
    if bound.model is None and not _completes(config.flows[flow]):
        yield _wrong(config, keys, f'flow "{flow}" has an agent but no {TEXT_COMPLETION.name} to think with; add it')
    if bound.model is not None and bound.model not in bound_models:
        sentence = f'no flow\'s {TEXT_COMPLETION.name} has the model "{bound.model}"; bind it, or leave the model out'
        yield _wrong(config, (*keys, "model"), sentence)
    for index, tool in enumerate(bound.tools or ()):
        if tool not in config.tools:
            known = ", ".join(sorted(config.tools)) or "none"
            yield _wrong(config, (*keys, "tools", str(index)), f'there is no tool "{tool}"; known are {known}')
    if bound.pattern == "supervisor" and not bound.agents:
        yield _wrong(config, keys, 'a supervisor needs agents = ["FLOW", ...] that it may ask; add them')
    for index, agent in enumerate(bound.agents):
        if AGENT.name not in config.flows.get(agent, {}):
            sentence = f'flow "{agent}" has no agent; add one, or leave it out'
            yield _wrong(config, (*keys, "agents", str(index)), sentence)
        elif flow in _find_asked(config, agent):
            sentence = f'the agents of "{flow}" and "{agent}" ask each other in a circle'
            yield _wrong(config, (*keys, "agents", str(index)), sentence)


def _completes(services: dict[str, ServiceConfig]) -> bool:
    return TEXT_COMPLETION.name in services


def _find_asked(config: Config, flow: str) -> set[str]:
    """The flow, and all flows whose agents its agent asks, however indirectly."""
    found, pending = set[str](), [flow]
    while pending:
        if (name := pending.pop()) not in found:
            found.add(name)
            agent = config.flows.get(name, {}).get(AGENT.name)
            pending.extend(agent.agents if agent else ())
    return found


def _faults_of_topic(config: Config, keys: tuple[str, ...], topic: str | None) -> Iterator[BadRequest]:
    try:
        if topic is not None:
            resolve_topic(topic)
    except ValueError:
        example = 'write a topic ("persistent://tenant/namespace/name") or a queue id ("request:tg:name")'
        yield _wrong(config, keys, example)


def _wrong(config: Config, keys: tuple[str, ...], sentence: str) -> BadRequest:
    return BadRequest(f"{config.where(*keys)}: {sentence}").at(*keys)
