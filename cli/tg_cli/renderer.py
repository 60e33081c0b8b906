"""Records -> person or program: what every command's way of showing an answer can do."""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar

import msgspec

from tg_cli.entry import say
from tg_schema import encode

Told_contra = TypeVar("Told_contra", contravariant=True)


_CUT = {
    "length": "the answer is cut: the model has reached its limit of tokens",
    "content_filter": "the answer is cut: the provider's content filter has stopped it",
}


class Renderer(Protocol[Told_contra]):
    """Shows one answer."""

    async def show(self, records: AsyncIterator[Told_contra]) -> None:
        """Show the records of an answer as they come, and tell what is to be told at its end.

        Raises:
            TgError: the answer failed; what came before is shown.
            ReaderLeft: nobody reads the output.
            Failure: the output can't be written.
        """


class Counted(Protocol):
    """A record that knows the usage of its stream."""

    @property
    def in_token(self) -> int | None:
        """Of the prompts."""

    @property
    def out_token(self) -> int | None:
        """Of the answers."""

    @property
    def model(self) -> str | None:
        """Who answered."""

    @property
    def finish_reason(self) -> str | None:
        """How the answer ended."""


def record_line(record: msgspec.Struct) -> bytes:
    """The record's JSON without what is not known, as the gateway writes it."""
    fields: list[tuple[str, Any]] = [(name, getattr(record, name)) for name in record.__struct_fields__]
    return encode({name: value for name, value in fields if value not in (None, ())})


def tell_end(last: Counted, *, show_usage: bool) -> None:
    """What is to be said on stderr at an answer's end: that it is cut, and its usage."""
    if last.finish_reason in _CUT:
        say(_CUT[last.finish_reason])
    if show_usage:
        say(usage(last))


def usage(record: Counted) -> str:
    """One line about the usage that stands on an answer's last record."""
    counts = ("unknown" if count is None else str(count) for count in (record.in_token, record.out_token))
    return "Input tokens: {}  Output tokens: {}  Model: {}".format(*counts, record.model or "unknown")
