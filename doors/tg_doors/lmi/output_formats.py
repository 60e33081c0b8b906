"""The name of an output formatter -> the writer that it stands for, and whether it streams."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tg_doors.lmi.custom_formatters import CustomWriter, OutputFormatter
from tg_doors.lmi.line_writer import (
    ChatLineWriter,
    LineWriter,
    MeteredLineWriter,
    make_chat_body_writer,
    make_chat_stream_writer,
    make_metered_writer,
)
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.whole_writer import make_body_writer, make_text_writer
from tg_gateway.dialects import Writer
from tg_schema.errors import BadRequest


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A form of answers.

    Attributes:
        make: the writer of one answer.
        streaming: whether it streams; None = if the request says so.
        tokens: whether it sends tokens.
        alternatives: whether it sends the most probable tokens at each place; None = if it has `details`.
        several: whether it can send the best of several answers.
    """

    make: Callable[[Order], Writer[Any]]
    streaming: bool | None
    tokens: bool = False
    alternatives: bool | None = False
    several: bool = True


FORMATS: Final[Mapping[str, OutputFormat]] = MappingProxyType(
    {
        "json": OutputFormat(make_body_writer, streaming=False, alternatives=None),
        "jsonlines": OutputFormat(lambda order: LineWriter(order, events=False), streaming=True, tokens=True),
        "sse": OutputFormat(lambda order: LineWriter(order, events=True), streaming=True, tokens=True),
        "json_chat": OutputFormat(make_chat_body_writer, streaming=False, alternatives=True),
        "jsonlines_chat": OutputFormat(ChatLineWriter, streaming=True, alternatives=True),
        "sse_chat": OutputFormat(make_chat_stream_writer, streaming=True, alternatives=True),
        "3p": OutputFormat(make_metered_writer, streaming=False),
        "3p_stream": OutputFormat(MeteredLineWriter, streaming=True),
        "none": OutputFormat(make_text_writer, streaming=None),
    }
)
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
