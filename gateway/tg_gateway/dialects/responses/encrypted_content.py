"""A provider's signature -> `encrypted_content` of a reasoning item, and back.

Clients send it back unread, and some of them send nothing else of the item. So it holds all that the provider needs:
the signature and the text that it signs. It is opaque, but no secret: the text is the model's own thinking, which the
same client has read.
"""

import base64
import binascii
from typing import Final

import msgspec

from tg_schema import decode, encode
from tg_schema.errors import BadRequest

_MARK: Final = "tg1."


class SealedReasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reasoning item brings back.

    Attributes:
        signature: the provider's, as a `Completion` brought it.
        text: the thinking that it signs.
        call: the id of the call that it signs, in place of thinking.
    """

    signature: str
    text: str = ""
    call: str | None = None


def seal(sealed: SealedReasoning) -> str:
    """The text for the wire."""
    return _MARK + base64.urlsafe_b64encode(encode(sealed)).decode()


def unseal(content: str) -> SealedReasoning | None:
    """What `seal` was given; None if the text is another server's, or damaged."""
    if not content.startswith(_MARK):
        return None
    try:
        return decode(SealedReasoning, base64.b64decode(content.removeprefix(_MARK), b"-_", validate=True))
    except (BadRequest, binascii.Error, ValueError):
        return None
