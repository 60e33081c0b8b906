"""An image in base64, of which nobody has said what it is -> a part of a message."""

import binascii
from base64 import b64decode
from typing import Final

from tg_schema import ImagePart
from tg_schema.errors import BadRequest

_HEAD_CHARACTERS: Final = 16
"""Characters of base64 that hold the 12 bytes by which the types are told apart."""
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
"""How images of these types begin."""


def read_image(place: str, data: str) -> ImagePart:
    """The image; its type is told by its first bytes.

    Raises:
        BadRequest: it is no base64, or no image of a known type.
    """
    try:
        head = b64decode(data[:_HEAD_CHARACTERS], validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{place} must be an image in base64") from None
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return ImagePart(media_type=media_type, data=data)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return ImagePart(media_type="image/webp", data=data)
    raise BadRequest(f"{place} must be a PNG, JPEG, GIF, WebP or BMP image in base64")
