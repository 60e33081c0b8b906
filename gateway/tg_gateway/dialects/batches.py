"""Dialect -> gateway: the files and the batches of one API key, and the answer to each line of a batch."""

import time
import uuid
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol, Self

import msgspec

from tg_gateway.dialects.kept_answers import KEPT_SECONDS, Outcome
from tg_gateway.dialects.pages import MAX_PAGE, Item, Page, find_page
from tg_schema import decode
from tg_schema.errors import BadRequest

BATCH_SECONDS: Final = int(KEPT_SECONDS)
"""How long the lines of a batch may wait and be asked."""
FILE_SECONDS: Final = 30 * BATCH_SECONDS
"""How long a file is kept, and a batch with its results."""
Shelf = Literal["file", "batch", "msgbatch"]
"""The kind of objects that are listed together; their ids begin with it. If the input of a batch was uploaded together
with the batch, no list shows it."""


CustomId = Annotated[str, msgspec.Meta(max_length=512)]


class Line(msgspec.Struct, frozen=True):
    """One request of a batch, as a line of its input."""

    custom_id: CustomId
    body: msgspec.Raw
    url: str = ""
    method: str = "POST"


class Result(msgspec.Struct, frozen=True):
    """The answer to one line.

    Attributes:
        custom_id: the line's.
        status: the HTTP status of the answer; 0 = the line was not sent before the batch was cancelled, or its time was
            over.
        request_id: in our logs.
        body: the answer's.
    """

    custom_id: str
    status: int = 0
    request_id: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


class Fault(msgspec.Struct, frozen=True):
    """Why a line of the input, or the whole input, cannot be processed; one of OpenAI's batch errors."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class File(msgspec.Struct, frozen=True, tag_field="object", tag="file"):
    """The facts about a file besides its bytes, in OpenAI's form."""

    id: str
    bytes: int
    filename: str
    purpose: str
    created_at: int
    expires_at: int
    status: Literal["processed"] = "processed"

    @classmethod
    def begin(cls, prefix: str, size: int, filename: str, purpose: str) -> Self:
        """A new file, whose id is new and has this prefix."""
        now = int(time.time())
        return cls(f"{prefix}-{uuid.uuid4().hex}", size, filename, purpose, now, now + FILE_SECONDS)


class Head(msgspec.Struct, frozen=True):
    """A batch as it was created.

    Attributes:
        id: its own.
        endpoint: the path that all its lines ask.
        input: the id of the file with its lines.
        total: their number.
        created: when, in Unix seconds.
        deadline: when it expires.
        metadata: the client's.
        faults: the reasons for which it was not started.
    """

    id: str
    endpoint: str
    input: str
    total: int
    created: int
    deadline: int
    metadata: dict[str, str] | None = None
    faults: tuple[Fault, ...] = ()

    @classmethod
    def begin(cls, shelf: Shelf, endpoint: str, file: str, total: int) -> Self:
        """A new batch, with a new id and its full time limit."""
        now = int(time.time())
        return cls(f"{shelf}_{uuid.uuid4().hex}", endpoint, file, total, now, now + BATCH_SECONDS)


class Counts(msgspec.Struct, frozen=True):
    """How many lines of a batch have a result: an answer, an error, or the note that they were not sent."""

    completed: int = 0
    failed: int = 0
    unasked: int = 0

    @classmethod
    def of(cls, statuses: Collection[int]) -> Self:
        """The counts of results with these statuses."""
        completed, unasked = (sum(each == status for each in statuses) for status in (200, 0))
        return cls(completed, len(statuses) - completed - unasked, unasked)


@dataclass(frozen=True, slots=True)
class Stored:
    """The current state of a batch.

    Attributes:
        head: the batch as it was created.
        counts: its results; while it is made, up to a hundredth of its lines may be missing.
        outcome: its state.
        begun: whether its lines are being asked.
        cancelled: when a client has cancelled it, in Unix seconds; 0 = none has.
        ended: when, in Unix seconds.
    """

    head: Head
    counts: Counts
    outcome: Outcome
    begun: bool
    cancelled: int
    ended: int


class Store(Protocol):
    """The files and batches of the key of one request.

    What is not there, is another key's or has expired raises NotFound. All methods raise BusError.
    """

    async def put(self, head: File, data: bytes) -> None:
        """Keep a file. Raises BadRequest if as much is kept as may."""

    async def read(self, file: str) -> bytes:
        """The bytes of a file."""

    async def begin(self, head: Head) -> None:
        """Submit a batch for processing, unless it has faults: then it has failed. Raises BadRequest as `put`."""

    async def find(self, batch: str) -> Stored:
        """A batch as it is now."""

    async def read_results(self, batch: str) -> Sequence[Result]:
        """The results of a batch so far, each custom id once."""

    async def cancel(self, batch: str) -> None:
        """Stop a batch, soon."""

    async def list(self, shelf: Shelf) -> Mapping[str, bytes]:
        """The heads of all files or batches by their ids, the newest first."""

    async def erase(self, name: str) -> None:
        """Erase a file, or a batch with its results."""


async def list_batches(
    store: Store, shelf: Shelf, query: Mapping[str, str], show: Callable[[Stored], Item], most: int = MAX_PAGE
) -> Page[Item]:
    """A page of batches. Raises as `find_page`, and BusError."""
    ids = list(await store.list(shelf))
    page = find_page(ids, ids, query, most=most)
    shown = tuple([show(await store.find(each)) for each in page.data])
    return Page(shown, page.first_id, page.last_id, page.has_more)


def read_lines(data: bytes) -> Iterator[tuple[int, Line | BadRequest]]:
    """The lines of a file with their numbers, without empty ones; for a malformed line, the reason in its place."""
    for number, text in enumerate(data.removeprefix(BOM_UTF8).splitlines(), 1):
        try:
            if text.strip():
                yield number, decode(Line, text)
        except BadRequest as error:
            yield number, error
