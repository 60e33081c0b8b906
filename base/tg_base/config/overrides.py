"""Command line -> configuration: the options of a process that override the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from tg_base.config.model import ApiKey, Config, ModelConfig
from tg_base.config.text_completion_config import TextCompletionConfig
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BadRequest

OVERRIDDEN_FLOW = "default"
"""The flow whose model `--model` sets."""
_FILE_PROVIDER = "llama-cpp"
_KEY_NAME = "command-line"
"""Of the key that the command line gives, in logs."""


@dataclass(frozen=True, slots=True)
class CliOverrides:
    """The options of the command line; None = the file's value. `options` are the provider's.

    `key` is the SHA-256 of a key in hex, beside the file's.
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

    def apply(self, config: Config) -> Config:
        """The configuration with these options applied.

        Raises:
            BadRequest: they contradict each other, or name an unknown model.
        """
        if self.bus is not None:
            config = msgspec.structs.replace(config, bus=msgspec.structs.replace(config.bus, url=self.bus))
        given: dict[str, Any] = {"host": self.host, "port": self.port, "drain": self.drain, "origins": self.origins}
        if self.key is not None:
            given["keys"] = (*config.gateway.keys, ApiKey(name=_KEY_NAME, sha256=self.key))
        changes = {name: value for name, value in given.items() if value is not None}
        config = msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, **changes))
        return config if self.model is None else self._with_model(config, self.model)

    def _with_model(self, config: Config, model: str) -> Config:
        name = model
        models = dict(config.models)
        if model.startswith("hf:") or model.endswith(".gguf"):
            name = PurePath(model).stem
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
                "or give its --provider"
            )
        services = dict(config.flows.get(OVERRIDDEN_FLOW, {}))
        bound = config.bound(TextCompletionConfig).get(OVERRIDDEN_FLOW, TextCompletionConfig())
        services[TEXT_COMPLETION.name] = msgspec.structs.replace(bound, model=name)
        return msgspec.structs.replace(config, models=models, flows={**config.flows, OVERRIDDEN_FLOW: services})
