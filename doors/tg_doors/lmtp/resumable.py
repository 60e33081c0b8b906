"""A stream with a `request_key` -> a log while it is made -> its items, on any socket, from any number on.

The log has the records of the answer, not its items. Every reader makes the same items from them with its own writer,
so item numbers agree on all sockets.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Final

import msgspec

from tg_doors.lmtp.item_writers import StreamForm
from tg_doors.lmtp.messages import RequestKey, StreamId
from tg_doors.lmtp.prompt import Prompt
from tg_doors.lmtp.request import StreamBody
from tg_doors.lmtp.stream_writer import StreamWriter
from tg_gateway.dialects import (
    BEGUN_LINES,
    Background,
    KeptAnswer,
    KeptAnswers,
    RecordedEnd,
    StreamedAnswer,
    join_output,
)
from tg_schema import TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import BadRequest, Cancelled, NotFound, TooLarge, Unavailable

RESUMABLE_SECONDS: Final = 3600.0
"""How long a stream can be resumed."""
_GONE: Final = "the gateway of this stream has ended, or lost the bus; generate it again"
_CUT: Final = "the tokens of this stream are too many to be kept: ask for fewer top_logprobs, or for less at once"
_OTHER_KEY: Final = "what it has said is kept under its request_key: generate it again with another"
_UNKNOWN: Final = "request_key: no stream of this key is kept: it never began, or its time is over"


class ResumeBody(msgspec.Struct, frozen=True):
    """The JSON of a RESUME.

    Attributes:
        stream_id: the id of the stream from now on.
        after_seq: the `seq` of the last item that the client has; 0 = none.
    """

    stream_id: StreamId
    request_key: RequestKey
    after_seq: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


def name_stream(api_key: str | None, request_key: str) -> str:
    """The name under which a stream is kept: another one for each API key."""
    digest = hashlib.sha256(encode((api_key or "", request_key))).hexdigest()
    return f"lmtp_{digest[:48]}"


def digest_request(body: StreamBody, prompt: Prompt, mask: bytes = b"") -> str:
    """A digest that is equal for messages with one `request_key` that ask for the same; "" without such a key.

    Stream ids, deadlines and the prompt's buffers may differ.
    """
    if body.request_key is None:
        return ""
    asked = msgspec.structs.replace(body, stream_id=0, prompt=(), deadline_ms=None)
    digest = hashlib.blake2b(encode((asked, msgspec.structs.replace(prompt, key=None))), digest_size=16)
    digest.update(mask)
    return digest.hexdigest()


def make_background(
    name: str, form: StreamForm, writer: StreamWriter, on_started: Callable[[], None] | None = None
) -> Background:
    """How the gateway keeps a stream while it is made.

    Args:
        name: from `name_stream`.
        form: the form of its items.
        writer: the writer for the client that asks.
        on_started: called when a processor works on it.
    """
    head = encode(form)

    def answer(kept: KeptAnswers) -> StreamedAnswer:
        return StreamedAnswer(_read_on(kept, name, head, writer, 0, on_started=on_started), "", {}, b"")

    return Background(
        name,
        head,
        keeps_parts=True,
        answer=answer,
        chosen="request_key",
        keeps_whole=False,
        seconds=RESUMABLE_SECONDS,
    )


async def resume(
    kept: KeptAnswers, name: str, after: int, make_writer: Callable[[StreamForm], StreamWriter]
) -> AsyncGenerator[bytes, None]:
    """The items after the number `after`, including later ones.

    Raises:
        NotFound: there is no such stream.
        BadRequest: the stream has ended, and has no items after that number.
        Unavailable: the stream has no end, since its gateway has died.
        TgError: the stream failed with this error.
    """
    try:
        head = (await kept.read(name)).head
    except NotFound:
        head = None
    if head is None:
        raise NotFound(_UNKNOWN)
    async with aclosing(_read_on(kept, name, head, make_writer(decode(StreamForm, head)), after)) as parts:
        async for part in parts:
            yield part


async def _read_on(
    kept: KeptAnswers,
    name: str,
    head: bytes,
    writer: StreamWriter,
    after: int,
    *,
    on_started: Callable[[], None] | None = None,
) -> AsyncGenerator[bytes, None]:
    writer.number_items(after)
    rest, begun = b"", False
    async with aclosing(_follow(kept, name, head)) as steps:
        async for step in steps:
            if isinstance(step, KeptAnswer):
                raise _name_failure(step, begun=begun)
            if step == BEGUN_LINES and on_started is not None:
                on_started()
            *lines, rest = (rest + step).split(b"\n")
            for line in filter(None, lines):
                begun = True
                record = decode(TextCompletionResponse, line)
                data = writer.write(record)
                if record.last:
                    yield join_output(data) + join_output(writer.end())
                    if writer.count <= after:
                        raise BadRequest(f"after_seq: the stream has ended with item {writer.count}; it has no more")
                    return
            # Kept items may come all at once: give other streams a turn in between.
            await asyncio.sleep(0)
            yield b""


async def _follow(kept: KeptAnswers, name: str, head: bytes) -> AsyncGenerator[bytes | KeptAnswer, None]:
    """The kept records. If they were erased, or the key was reused meanwhile, an error that names the key."""
    try:
        async with aclosing(kept.follow(name, head)) as steps:
            async for step in steps:
                yield step
    except NotFound:
        raise NotFound(_UNKNOWN) from None


def _name_failure(answer: KeptAnswer, *, begun: bool) -> TgError:
    """The reason why a stream ended before its last item. `begun`: it has items, and keeps its key."""
    end = decode(RecordedEnd, answer.end) if answer.outcome == "ended" and not answer.rendered else None
    if end is not None and end.error is not None and not end.cancelled:
        error = TgError.of(end.error)
        if begun and error.retryable:
            return type(error)(f"{error.message}; {_OTHER_KEY}", retry_after=error.retry_after)
        return error
    if answer.outcome == "cancelled" or (end is not None and end.cancelled):
        return Cancelled("the request was cancelled")
    if answer.cut:
        return TooLarge(_CUT)
    return Unavailable(f"{_GONE} with another key" if begun else _GONE)
