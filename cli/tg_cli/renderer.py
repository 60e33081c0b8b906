"""Records -> output: the interface of every command's way to show an answer."""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar, assert_never

from tg_cli.endings import notify
from tg_client import TextCompletionResult
from tg_schema import AgentResponse, PromptResponse, TextCompletionResponse, encode

Told_contra = TypeVar("Told_contra", contravariant=True)
Counted = AgentResponse | PromptResponse | TextCompletionResponse | TextCompletionResult
"""What has the usage of an answer, and how it ended."""


class Renderer(Protocol[Told_contra]):
    """Shows one answer."""

    async def show(self, records: AsyncIterator[Told_contra]) -> None:
        """Show the records of an answer as they come, and what belongs at its end.

        Raises:
            TgError: the answer failed; the part before it was shown.
            ReaderLeft: the reader of the output has closed it.
            Failure: the output cannot be written.
        """


def record_line(record: Any) -> bytes:
    """A record (a msgspec struct) as JSON, as the gateway writes it: without None, empty tuples and an index of 0."""
    fields: list[tuple[str, Any]] = [(name, getattr(record, name)) for name in record.__struct_fields__]
    return encode({name: value for name, value in fields if value not in (None, ()) and (name, value) != ("index", 0)})


def print_end(last: Counted, *, show_usage: bool) -> None:
    """Report on stderr, at an answer's end, that it is truncated, and its usage."""
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
