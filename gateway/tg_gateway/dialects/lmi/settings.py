"""The table `[gateway.lmi]` of the configuration -> what the door does."""

from dataclasses import dataclass

from tg_base.config import LmiConfig
from tg_gateway.dialects.lmi.custom_formatters import (
    INPUT_GROUP,
    OUTPUT_GROUP,
    InputFormatter,
    OutputFormatter,
    load_formatter,
)
from tg_gateway.dialects.lmi.output_formats import FORMATS


@dataclass(frozen=True, slots=True)
class LmiSettings:
    """What an operator has configured.

    Attributes:
        compatible: TGI's names and shapes.
        rolling: whether one text is answered by an object; else by a list, as several are.
        output_name: the output formatter of requests that name none; "" = by `stream`.
        output_formatter: it, if it is none of LMI's.
        input_formatter: reads the bodies; None = they are LMI's.
    """

    compatible: bool = False
    rolling: bool = True
    output_name: str = ""
    output_formatter: OutputFormatter | None = None
    input_formatter: InputFormatter | None = None


def read_settings(config: LmiConfig) -> LmiSettings:
    """The settings, with the functions that they name.

    Raises:
        BadRequest: there is no such formatter.
    """
    name, reader = config.output_formatter, config.input_formatter
    own = None if not name or name in FORMATS else load_formatter(name, OUTPUT_GROUP, "output_formatter")
    read = load_formatter(reader, INPUT_GROUP, "input_formatter") if reader else None
    return LmiSettings(config.tgi_compat, config.rolling_batch, name, own, read)
