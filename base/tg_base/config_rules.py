"""Config -> what no single field can tell: references between tables, and names that become topics."""

import re

from tg_base.config import SPECS, Config, ServiceConfig
from tg_schema.errors import BadRequest
from tg_schema.service_spec import PROMPT, TEXT_COMPLETION
from tg_schema.topics import resolved

_FLOW = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check(config: Config) -> None:
    """Refuse a configuration that could not run.

    Raises:
        BadRequest: the first thing that is wrong, with its place and what to do.
    """
    for flow, services in config.flows.items():
        if not _FLOW.fullmatch(flow):
            raise _wrong(config, ("flows", flow), "a flow's name may have letters, digits, and . _ - only")
        for service, bound in services.items():
            _check_service(config, flow, service, bound)


def _check_service(config: Config, flow: str, service: str, bound: ServiceConfig) -> None:
    keys = ("flows", flow, service)
    if service not in SPECS:
        raise _wrong(config, keys, f'there is no service "{service}"; known are {", ".join(sorted(SPECS))}')
    for field, topic in (("request", bound.request), ("response", bound.response)):
        _check_topic(config, (*keys, field), topic)
    if service == TEXT_COMPLETION.name:
        _check_model(config, keys, bound)
    elif bound.model is not None:
        raise _wrong(config, (*keys, "model"), f"only {TEXT_COMPLETION.name} has a model; remove it here")
    if service == PROMPT.name and not bound.plain and TEXT_COMPLETION.name not in config.flows[flow]:
        raise _wrong(config, keys, f'flow "{flow}" has prompts but no {TEXT_COMPLETION.name} to answer them; add it')


def _check_model(config: Config, keys: tuple[str, ...], bound: ServiceConfig) -> None:
    if bound.plain:
        return
    if bound.model is None:
        raise _wrong(config, keys, f'{TEXT_COMPLETION.name} needs a model: model = "NAME" of a table [models.NAME]')
    if bound.model not in config.models:
        known = ", ".join(sorted(config.models)) or "none"
        sentence = f'there is no model "{bound.model}"; known are {known}. Add a table [models.{bound.model}]'
        raise _wrong(config, (*keys, "model"), sentence)


def _check_topic(config: Config, keys: tuple[str, ...], topic: str | None) -> None:
    try:
        if topic is not None:
            resolved(topic)
    except ValueError:
        example = 'write a topic ("persistent://tenant/namespace/name") or a queue id ("request:tg:name")'
        raise _wrong(config, keys, example) from None


def _wrong(config: Config, keys: tuple[str, ...], sentence: str) -> BadRequest:
    return BadRequest(f"{config.where(*keys)}: {sentence}")
