"""A provider's signature, or the summary of a conversation -> `encrypted_content` of an item, and back.

Clients send it back unread, and some of them send nothing else of the item. So it holds all that the provider needs:
the signature and the text that it signs. It is opaque, but no secret: the text is either the model's thinking, which
the same client has read, or a summary of what the same client has sent.
"""

import base64
import binascii
from typing import Final, TypeVar

import msgspec

from tg_schema import decode, encode
from tg_schema.errors import BadRequest

_MARK: Final = "tg1."


class SealedReasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a reasoning item that a client sends back.

    Attributes:
        signature: the provider's signature, as a `Completion` brought it.
        text: the thinking that it signs.
        call: the id of the call that it signs, in place of thinking.
    """

    signature: str
    text: str = ""
    call: str | None = None


class SealedSummary(msgspec.Struct, frozen=True):
    """The content of a compaction item that a client sends back."""

    summary: str


Sealed = TypeVar("Sealed", SealedReasoning, SealedSummary)


def seal(sealed: SealedReasoning | SealedSummary) -> str:
    """The text of `encrypted_content`."""
    return _MARK + base64.urlsafe_b64encode(encode(sealed)).decode()


def unseal(content: str, kind: type[Sealed]) -> Sealed | None:
    """The argument of `seal`; None if the text is another server's, damaged, or of another kind."""
    if not content.startswith(_MARK):
        return None
    try:
        return decode(kind, base64.b64decode(content.removeprefix(_MARK), b"-_", validate=True))
    except (BadRequest, binascii.Error, ValueError):
        return None
