"""The name of an output formatter -> its writer; and the formatter that an operator has chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from tg_doors import LmiConfig
from tg_doors.lmi.custom_formatters import (
    INPUT_GROUP,
    OUTPUT_GROUP,
    CustomWriter,
    InputFormatter,
    OutputFormatter,
    load_formatter,
)
from tg_doors.lmi.line_writer import (
    ChatLineWriter,
    LineWriter,
    MeteredLineWriter,
    encode_metered,
    encode_whole_chat,
)
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.whole_writer import encode_answer, make_text_writer, make_whole_writer
from tg_gateway.dialects import Catalogue, Writer
from tg_gateway.dialects.chat import ChatStreamWriter
from tg_schema.errors import BadRequest, NotFound


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A form of answers.

    Attributes:
        make: the writer of one answer.
        streaming: whether it streams; None = the request decides.
        tokens: whether it sends token data.
        alternatives: whether it sends the most probable tokens at each place; None = yes, if it has `details`.
        several: whether it can send the best of several answers.
    """

    make: Callable[[Order], Writer[Any]]
    streaming: bool | None
    tokens: bool = False
    alternatives: bool | None = False
    several: bool = True


FORMATS: Final[Mapping[str, OutputFormat]] = {
    "json": OutputFormat(partial(make_whole_writer, encode_answer), streaming=False, alternatives=None),
    "jsonlines": OutputFormat(lambda order: LineWriter(order, events=False), streaming=True, tokens=True),
    "sse": OutputFormat(lambda order: LineWriter(order, events=True), streaming=True, tokens=True),
    "json_chat": OutputFormat(partial(make_whole_writer, encode_whole_chat), streaming=False, alternatives=True),
    "jsonlines_chat": OutputFormat(ChatLineWriter, streaming=True, alternatives=True),
    "sse_chat": OutputFormat(lambda order: ChatStreamWriter(order.model), streaming=True, alternatives=True),
    "3p": OutputFormat(partial(make_whole_writer, encode_metered), streaming=False),
    "3p_stream": OutputFormat(MeteredLineWriter, streaming=True),
    "none": OutputFormat(make_text_writer, streaming=None),
}
"""LMI's."""


def choose_format(name: str | None, own: Mapping[str, OutputFormatter], *, stream: bool, events: bool) -> OutputFormat:
    """The form of an answer.

    Args:
        name: the requested formatter; None or "" = none.
        own: the operator's further formatters.
        stream: whether the request asks for a stream.
        events: whether a stream is one of server-sent events where no formatter is named.

    Raises:
        BadRequest: there is no such formatter.
    """
    if not name:
        name = ("sse" if events else "jsonlines") if stream else "json"
    if name in own:
        formatter = own[name]
        return OutputFormat(lambda order: CustomWriter(order, formatter), streaming=None, tokens=True, several=False)
    if name not in FORMATS:
        known = ", ".join([*FORMATS, *own])
        raise BadRequest(f"parameters.output_formatter: there is no formatter {name[:64]!r}; there are: {known}")
    return FORMATS[name]


@dataclass(frozen=True, slots=True)
class LmiSettings:
    """The settings of an operator.

    Attributes:
        compatible: whether answers have TGI's names and shapes.
        rolling: whether one text is answered by an object; else by a list, as several are.
        output_name: the output formatter of requests that name none; "" = by `stream`.
        own: that formatter by its name, if it is not one of LMI's.
        input_formatter: reads the bodies; None = they are in LMI's form.
    """

    compatible: bool = False
    rolling: bool = True
    output_name: str = ""
    own: Mapping[str, OutputFormatter] = field(default_factory=dict)
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
    foreign = bool(name) and name not in FORMATS
    own = {name: load_formatter(name, OUTPUT_GROUP, *place, "output_formatter")} if foreign else {}
    read = load_formatter(reader, INPUT_GROUP, *place, "input_formatter") if reader else None
    return LmiSettings(config.tgi_compat, config.rolling_batch, name, own, read)
