"""Command line -> configuration: the options of a process that override the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from tg_base.config.model import Config, ModelConfig
from tg_base.config.text_completion_config import TextCompletionConfig
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BadRequest

OVERRIDDEN_FLOW = "default"
"""The flow whose model `--model` sets."""
_FILE_PROVIDER = "llama-cpp"


@dataclass(frozen=True, slots=True)
class CliOverrides:
    """The options of the command line; None = the file's value. `options` are the provider's."""

    bus: str | None = None
    host: str | None = None
    port: int | None = None
    drain: float | None = None
    model: str | None = None
    provider: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, config: Config) -> Config:
        """The configuration with these options applied.

        Raises:
            BadRequest: they contradict each other, or name an unknown model.
        """
        if self.bus is not None:
            config = msgspec.structs.replace(config, bus=msgspec.structs.replace(config.bus, url=self.bus))
        given = {"host": self.host, "port": self.port, "drain": self.drain}
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
        elif name not in models:
            known = ", ".join(sorted(models)) or "none"
            raise BadRequest(
                f'there is no model "{name}" (known: {known}): name one of these, a PATH.gguf, an hf:OWNER/NAME/FILE, '
                "or give its --provider"
            )
        services = dict(config.flows.get(OVERRIDDEN_FLOW, {}))
        bound = config.bound(TextCompletionConfig).get(OVERRIDDEN_FLOW, TextCompletionConfig())
        services[TEXT_COMPLETION.name] = msgspec.structs.replace(bound, model=name)
        return msgspec.structs.replace(config, models=models, flows={**config.flows, OVERRIDDEN_FLOW: services})
