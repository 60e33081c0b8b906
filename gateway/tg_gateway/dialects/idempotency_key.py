"""Request with a client's own key -> the name of its one answer, and a digest by which repetitions are recognised.

Requests with one key, of one API key, are one request: it is made once, and all of them get its answer.
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from tg_base.runtime import MAX_QUICK_BYTES
from tg_schema import decode, encode
from tg_schema.errors import BadRequest

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
"""The header of a request that may be sent again."""
MAX_SORTED_BYTES: Final = 16 * 1024
"""Largest object in a field whose keys may come in any order."""
REPEATED_SECONDS: Final = 600
"""How long an answer is kept for requests that are sent again, unless they or the configuration say otherwise."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The identity that repeated requests share.

    Attributes:
        field: the field in which the client gives its word; "" = the word is made of the request, and holds only once
            the first client has left.
        owner: the name of the API key that asks; None = it has none.
        word: the client's word; it may be any text.
        digest: the result of `digest_request`.
    """

    MAX_CHARACTERS: ClassVar = 256
    """Longest word of a client."""
    field: str
    owner: str | None
    word: str
    digest: str

    @property
    def name(self) -> str:
        """The name of the answer's log: another one for each API key."""
        return name_answer("ik-", self.owner, f"{self.field}:{self.word}")

    def check(self) -> None:
        """Raises BadRequest if the client's word is malformed."""
        if self.field and not (0 < len(self.word) <= self.MAX_CHARACTERS and self.word.isprintable()):
            raise BadRequest(f"{self.field} must have 1 to {self.MAX_CHARACTERS} printable characters")


def name_answer(prefix: str, owner: str | None, word: str) -> str:
    """The name of the answer that a client calls by this word; no other API key can find it."""
    return f"{prefix}{hashlib.sha256(encode((owner or '', word))).hexdigest()[:48]}"


async def digest_request(path: str, body: bytes) -> str:
    """A digest that is equal for requests that ask for the same, streamed or not."""
    if len(body) <= MAX_QUICK_BYTES:
        return _digest(path, body)
    return await asyncio.to_thread(_digest, path, body)


def _digest(path: str, body: bytes) -> str:
    # A text that is no Unicode can be read, but not written.
    with suppress(BadRequest, UnicodeEncodeError):
        fields = decode(dict[str, msgspec.Raw], body)
        fields.pop("stream", None)
        body = encode([(name, _sort(fields[name])) for name in sorted(fields)])
    return hashlib.blake2b(encode(path) + body, digest_size=16).hexdigest()


def _sort(value: msgspec.Raw) -> Any:
    """The value, with its keys in order if it is a short object: clients send metadata in any order."""
    view = memoryview(value)
    if bytes(view[:1]) != b"{" or len(view) > MAX_SORTED_BYTES:
        return value
    return msgspec.Raw(msgspec.json.encode(decode(Any, value), order="sorted"))
