"""JSON of a large request -> its record: a worker process decodes and checks it, and sends it back in parts.

Between two parts the event loop has its turn: to unpickle 30,000 messages or two million token ids takes 50 ms.
"""

import asyncio
import pickle
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import msgspec
from typing_extensions import override

from tg_base.llm.request_plan import check_completion
from tg_base.server import Unreadable
from tg_schema import TextCompletionRequest, decode, encode
from tg_schema.errors import BadRequest, TooLarge
from tg_schema.features import Feature

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""JSON bytes of `schema` and of each tool. OpenAI takes schemas of 5,000 properties and 120,000 characters."""
PART_OBJECTS: Final = 1000
"""Messages, tools or texts in one part of a request."""
PART_IDS: Final = 100_000
"""Token ids in one part."""
PART_BIASES: Final = 20_000
"""Entries of `logit_bias` in one part."""
_ID_LISTS: Final = "id_lists"
_BIAS: Final = "logit_bias"
_LONG_FIELDS: Final = {
    "messages": PART_OBJECTS,
    "tools": PART_OBJECTS,
    "texts": PART_OBJECTS,
    "choice": PART_OBJECTS,
    "prompt_ids": PART_IDS,
    "scored": PART_IDS,
    _ID_LISTS: PART_IDS,
    _BIAS: PART_BIASES,
}
"""Fields that may have thousands of items, and the number of items in one part. `logit_bias` is one of `sampling`."""


class CheckedRequest(TextCompletionRequest, frozen=True):
    """A request that has been checked where it was decoded.

    Attributes:
        needed: the features that it needs.
    """

    needed: frozenset[Feature] = frozenset()

    @property
    @override
    def features(self) -> frozenset[Feature]:
        return self.needed


class RequestParts(NamedTuple):
    """A request on its way between two processes.

    Attributes:
        head: the request without its long fields.
        parts: the items of the long fields: in each part a field's name and some of its items, pickled.
        lengths: the lengths of the `id_lists`, whose ids stand one after the other.
    """

    head: CheckedRequest
    parts: tuple[tuple[str, bytes], ...]
    lengths: tuple[int, ...]


def read_request(data: bytes) -> TextCompletionRequest:
    """Decode and check a request; runs in a worker process, like all but `join_request`.

    Raises:
        Unreadable: the JSON is not a request.
        BadRequest: its fields contradict each other, or are out of range.
        TooLarge: a schema is too large.
    """
    try:
        request = decode(TextCompletionRequest, data)
    except BadRequest as error:
        raise Unreadable(error.message) from None
    check_schemas(request)
    check_completion(request)
    return request


def read_in_parts(data: bytes) -> RequestParts:
    """As `read_request`, split into parts to travel."""
    return split_request(read_request(data))


def check_schemas(request: TextCompletionRequest) -> None:
    """Refuse schemas that are larger than any model accepts, because processes on the way compile them.

    Raises:
        TooLarge: a schema is too large.
    """
    schemas = {"schema": request.schema} | {f"tools[{i}]": tool.parameters for i, tool in enumerate(request.tools)}
    for name, schema in schemas.items():
        if len(encode(schema)) > MAX_SCHEMA_BYTES:
            raise TooLarge(f"{name}: a schema may have {MAX_SCHEMA_BYTES} bytes as JSON; make it smaller")


def split_request(request: TextCompletionRequest) -> RequestParts:
    """Split a checked request into parts."""
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    long = {name: fields.pop(name) for name in _LONG_FIELDS if name in fields}
    lengths = tuple(map(len, long[_ID_LISTS]))
    long[_ID_LISTS] = tuple(chain.from_iterable(long[_ID_LISTS]))
    if request.sampling is not None and request.sampling.logit_bias:
        long[_BIAS] = tuple(request.sampling.logit_bias.items())
        fields["sampling"] = msgspec.structs.replace(request.sampling, logit_bias=None)
    parts = tuple(part for name, items in long.items() for part in _cut(name, items, _LONG_FIELDS[name]))
    return RequestParts(CheckedRequest(**fields, needed=request.features), parts, lengths)


async def join_request(request: RequestParts) -> CheckedRequest:
    """Join a request's parts again, in the process that answers it."""
    found: dict[str, list[Any]] = {}
    for name, part in request.parts:
        found.setdefault(name, []).extend(pickle.loads(part))  # noqa: S301 - from a process that we started
        await asyncio.sleep(0)
    bias = found.pop(_BIAS, None)
    fields = {name: tuple(items) for name, items in found.items()}
    if ids := fields.pop(_ID_LISTS, None):
        ends = tuple(accumulate(request.lengths))
        fields[_ID_LISTS] = tuple(ids[end - size : end] for end, size in zip(ends, request.lengths, strict=True))
    made = msgspec.structs.replace(request.head, **fields)
    if bias is None or made.sampling is None:
        return made
    return msgspec.structs.replace(made, sampling=msgspec.structs.replace(made.sampling, logit_bias=dict(bias)))


def _cut(name: str, items: tuple[Any, ...], size: int) -> Iterator[tuple[str, bytes]]:
    for start in range(0, len(items), size):
        yield name, pickle.dumps(items[start : start + size], pickle.HIGHEST_PROTOCOL)
