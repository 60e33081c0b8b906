"""Command line -> configuration: the options of a process that override the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from tg_base.config.model import ApiKey, Config, ModelConfig
from tg_base.config.rules import faults
from tg_base.config.services import TextCompletionConfig
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BadRequest

OVERRIDDEN_FLOW = "default"
"""The flow whose model `--model` sets."""
_ANY_FLOW = "*"
"""Stands for flows that have the names of models. It is no flow's name."""
_FILE_PROVIDER = "llama-cpp"
_KEY_NAME = "command-line"
"""The name, in logs, of the key that the command line gives."""


@dataclass(frozen=True, slots=True)
class CliOverrides:
    """The options of the command line; None = the file's value. `options` are the provider's.

    `key` is the SHA-256 of a key in hex, beside the file's. Each of `additional_models` gets a flow of its own name,
    and has the provider and the options of `model`. With `on_demand` all models of the file are served, each loaded for
    its first request.
    """

    bus: str | None = None
    host: str | None = None
    port: int | None = None
    drain: float | None = None
    model: str | None = None
    provider: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    origins: tuple[str, ...] | None = None
    key: str | None = None
    allow_credentials: bool | None = None
    additional_models: tuple[str, ...] = ()
    on_demand: bool = False

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows whose models these options name."""
        return (*(() if self.model is None else (OVERRIDDEN_FLOW,)), *map(_name, self.additional_models))

    @property
    def completed(self) -> tuple[str, ...]:
        """The flows whose models the file need not have; with `on_demand` flows of any name, since models name them."""
        return (*self.flows, _ANY_FLOW) if self.on_demand else self.flows

    def apply(self, config: Config) -> Config:
        """The configuration with these options applied.

        Raises:
            BadRequest: the options contradict each other, name an unknown model, or name one twice; or a name in the
                file leads nowhere even with these options.
        """
        if self.bus is not None:
            config = msgspec.structs.replace(config, bus=msgspec.structs.replace(config.bus, url=self.bus))
        names = ("host", "port", "drain", "origins", "allow_credentials")
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.key is not None:
            given["keys"] = (*config.gateway.keys, ApiKey(name=_KEY_NAME, sha256=self.key, admin=True))
        changes = {name: value for name, value in given.items() if value is not None}
        config = msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, **changes))
        if self.on_demand:
            config = _serve_all_on_demand(config)
        served: set[str] = set()
        for model in (*(() if self.model is None else (self.model,)), *self.additional_models):
            name, config = self._with_model(config, model)
            if name in served:
                raise BadRequest(f'two models would have the name "{name}": name each one once')
            config = _bind(config, name if served else OVERRIDDEN_FLOW, name)
            served.add(name)
        if (served or self.on_demand) and config.source is not None:
            # The reader could not know the names that these options give.
            config = msgspec.structs.replace(config, source=msgspec.structs.replace(config.source, completed=()))
            for fault in faults(config):
                # A flow that `on_demand` adds has its model's name, which may have characters that flows' names may not
                # have.
                if served or fault.option[0] != "flows":
                    raise fault
        return config

    def _with_model(self, config: Config, model: str) -> tuple[str, Config]:
        """The model's name, and the configuration with it."""
        name, models = _name(model), dict(config.models)
        if _is_file(model):
            models[name] = ModelConfig(self.provider or _FILE_PROVIDER, {"path": model, **self.options})
        elif self.provider is not None:
            models[name] = ModelConfig(self.provider, dict(self.options))
        elif name in models:
            configured = models[name]
            models[name] = msgspec.structs.replace(configured, options={**configured.options, **self.options})
        else:
            known = ", ".join(sorted(models)) or "none"
            raise BadRequest(
                f'there is no model "{name}" (known: {known}): name one of these, a PATH.gguf, an hf:OWNER/NAME/FILE, '
                f"or give its --provider, for instance of a model of Ollama: tg-serve {name} --provider ollama"
            )
        return name, msgspec.structs.replace(config, models=models)


def _is_file(model: str) -> bool:
    return model.startswith("hf:") or model.endswith(".gguf")


def _name(model: str) -> str:
    return PurePath(model).stem if _is_file(model) else model


def _bind(config: Config, flow: str, model: str) -> Config:
    """The configuration with a flow that has this model."""
    services = dict(config.flows.get(flow, {}))
    bound = config.bound(TextCompletionConfig).get(flow, TextCompletionConfig())
    services[TEXT_COMPLETION.name] = msgspec.structs.replace(bound, model=model)
    return msgspec.structs.replace(config, flows={**config.flows, flow: services})


def _serve_all_on_demand(config: Config) -> Config:
    """Every model has a flow: one that binds it already, or a new one of its name."""
    models = {name: msgspec.structs.replace(model, on_demand=True) for name, model in config.models.items()}
    bound = {service.model for service in config.bound(TextCompletionConfig).values()}
    free = [model for model in models if model not in bound and model not in config.flows]
    flows = {model: {TEXT_COMPLETION.name: TextCompletionConfig(model=model)} for model in free}
    return msgspec.structs.replace(config, models=models, flows={**config.flows, **flows})
