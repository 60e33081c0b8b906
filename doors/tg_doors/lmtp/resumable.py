"""A stream with a `request_key` -> a log, while the stream is made -> its items, on any socket, from any number on.

The log has the records of the answer, not its items. Every reader makes the same items from them with its own writer,
so item numbers agree on all sockets.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from typing_extensions import override

from tg_doors.lmtp.item_writers import StreamForm
from tg_doors.lmtp.messages import RequestKey, StreamId
from tg_doors.lmtp.prompt import Prompt
from tg_doors.lmtp.request import StreamBody
from tg_doors.lmtp.stream_writer import StreamWriter
from tg_gateway.dialects import (
    Background,
    KeptAnswer,
    KeptAnswers,
    StreamedAnswer,
    StreamReader,
    find_failure,
    name_answer,
)
from tg_schema import decode, encode
from tg_schema.errors import BadRequest, NotFound, TooLarge

RESUMABLE_SECONDS: Final = 3600.0
"""How long a stream can be resumed."""
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
    """The name under which a stream is kept; it differs for each API key."""
    return name_answer("lmtp_", api_key, request_key)


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
        joins=lambda found: found.head == head,
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
    reader = _ItemReader(writer, name, head=head, asks=True, on_begun=on_started)
    try:
        async with aclosing(reader.follow(kept)) as parts:
            async for part in parts:
                yield part
                if reader.over:
                    break
    except NotFound:
        # The answer was erased, or the key was reused meanwhile.
        raise NotFound(_UNKNOWN) from None
    if writer.count <= after:
        raise BadRequest(f"after_seq: the stream has ended with item {writer.count}; it has no more")


class _ItemReader(StreamReader):
    @override
    def end_early(self, answer: KeptAnswer) -> bytes:
        """Raises the reason why a stream ended before its last item. A stream that has items keeps its key."""
        if answer.cut:
            raise TooLarge(_CUT)
        error = find_failure(answer)
        if self.cutter.number and error.retryable:
            raise type(error)(f"{error.message}; {_OTHER_KEY}", retry_after=error.retry_after)
        raise error
