"""[flows.NAME.text-completion] -> the model of a flow."""

import re
from collections.abc import Iterator

from typing_extensions import override

from tg_base.config.changes import Followed
from tg_base.config.model import Config, ServiceConfig
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BadRequest

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""What TOML takes as a key without quotes."""


class TextCompletionConfig(ServiceConfig, frozen=True):
    """The text-completion service of a flow."""

    spec = TEXT_COMPLETION
    model: Followed[str | None] = None
    """The name of a table of models; required unless the processors are TrustGraph's (`plain`)."""

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        keys = ("flows", flow, TEXT_COMPLETION.name)
        if self.plain:
            return
        if self.model is None and config.completes(flow):
            return
        if self.model is None:
            yield config.fault(f'{TEXT_COMPLETION.name} needs a model: model = "NAME" of a table [models.NAME]', *keys)
        elif self.model not in config.models:
            known = ", ".join(sorted(config.models)) or "none"
            table = self.model if _BARE_KEY.fullmatch(self.model) else f'"{self.model}"'
            sentence = f'there is no model "{self.model}"; known are {known}. Add a table [models.{table}]'
            yield config.fault(sentence, *keys, "model")

    @property
    @override
    def bound_model(self) -> str | None:
        return self.model

    @override
    def find_queue(self, config: Config) -> int | None:
        model = config.models.get(self.model or "")
        return None if model is None else model.queue
