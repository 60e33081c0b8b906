"""Records of an answer -> stdout: their text as it arrives, or one JSON object a line; the usage at its end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, assert_never

from tg_cli.endings import notify
from tg_cli.output import Output
from tg_client import TextCompletionResult
from tg_schema import AgentResponse, PromptResponse, TextCompletionResponse, encode

Counted = AgentResponse | PromptResponse | TextCompletionResponse
"""Records that carry an answer's usage and how it ended."""
Record = TypeVar("Record", bound=Counted)

Write = Callable[[AsyncIterator[Record], Output], Awaitable[Record | None]]
"""Writes an answer as it comes; returns its last record. If the answer fails, the part before it was written."""


async def show(records: AsyncIterator[Record], write: Write[Record], *, as_json: bool, show_usage: bool) -> None:
    """Write an answer, by `write` or as JSON. At its end, report truncation and usage on stderr.

    Raises:
        TgError: the answer failed; the part before it was shown.
        ReaderLeft: the reader of the output has closed it.
        Failure: the output cannot be written.
    """
    async with Output() as output:
        last = await (_write_lines if as_json else write)(records, output)
    if last is not None:
        print_end(last, show_usage=show_usage)


async def _write_lines(records: AsyncIterator[Record], output: Output) -> Record | None:
    record = None
    async for record in records:
        await output.json(record_line(record))
    return record


async def write_text(
    text: Callable[[Record], str | None], records: AsyncIterator[Record], output: Output
) -> Record | None:
    """Write the `text` of each record; returns the last one."""
    record = None
    async for record in records:
        await output.text(text(record) or "")
    return record


def record_line(record: Any) -> bytes:
    """A record (a msgspec struct) as JSON, as the gateway writes it: without None, empty tuples and an index of 0."""
    fields: list[tuple[str, Any]] = [(name, getattr(record, name)) for name in record.__struct_fields__]
    return encode({name: value for name, value in fields if value not in (None, ()) and (name, value) != ("index", 0)})


def print_end(last: Counted | TextCompletionResult, *, show_usage: bool) -> None:
    """Report on stderr, at an answer's end, whether it is truncated, and its usage."""
    match last.finish_reason:
        case "length":
            notify("the answer is cut: the model has reached its limit of tokens")
        case "content_filter":
            notify("the answer is cut: the provider's content filter has stopped it")
        case "stop" | "tool_calls" | None:
            pass
        case _:
            assert_never(last.finish_reason)
    if show_usage:
        counts = ("unknown" if count is None else str(count) for count in (last.in_token, last.out_token))
        notify("Input tokens: {}  Output tokens: {}  Model: {}".format(*counts, last.model or "unknown"))
