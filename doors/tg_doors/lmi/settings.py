"""The table `[gateway.lmi]` of the configuration -> the settings of this door, for each model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tg_doors import LmiConfig
from tg_doors.lmi.custom_formatters import (
    INPUT_GROUP,
    OUTPUT_GROUP,
    InputFormatter,
    OutputFormatter,
    load_formatter,
)
from tg_doors.lmi.output_formats import FORMATS
from tg_gateway.dialects import Catalogue
from tg_schema.errors import NotFound


@dataclass(frozen=True, slots=True)
class LmiSettings:
    """What an operator has configured.

    Attributes:
        compatible: TGI's names and shapes.
        rolling: whether one text is answered by an object; else by a list, as several are.
        output_name: the output formatter of requests that name none; "" = by `stream`.
        output_formatter: that formatter, if it is not one of LMI's.
        input_formatter: reads the bodies; None = they are in LMI's form.
    """

    compatible: bool = False
    rolling: bool = True
    output_name: str = ""
    output_formatter: OutputFormatter | None = None
    input_formatter: InputFormatter | None = None


@dataclass(frozen=True, slots=True)
class LmiTable:
    """The settings of every model.

    Attributes:
        common: the settings of models without their own.
        models: the settings of the other models, by name.
    """

    common: LmiSettings = LmiSettings()
    models: Mapping[str, LmiSettings] = field(default_factory=dict)

    def find(self, catalogue: Catalogue, name: str | None) -> LmiSettings:
        """The settings of the model that a request names, also by an alias; None = of the default model."""
        if not self.models:
            return self.common
        try:
            return self.models.get(catalogue.find_model(name).model or "", self.common)
        except NotFound:
            return self.common


def read_settings(config: LmiConfig) -> LmiTable:
    """The settings, with the functions that they name.

    Raises:
        BadRequest: there is no such formatter.
    """
    common = _read(config, "lmi")
    return LmiTable(common, {name: _complete(config, own, name) for name, own in config.models.items()})


def _complete(config: LmiConfig, own: msgspec.Struct, model: str) -> LmiSettings:
    overrides = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
    return _read(msgspec.structs.replace(config, **overrides), "lmi", "models", model)


def _read(config: LmiConfig, *place: str) -> LmiSettings:
    name, reader = config.output_formatter, config.input_formatter
    own = None if not name or name in FORMATS else load_formatter(name, OUTPUT_GROUP, *place, "output_formatter")
    read = load_formatter(reader, INPUT_GROUP, *place, "input_formatter") if reader else None
    return LmiSettings(config.tgi_compat, config.rolling_batch, name, own, read)
