"""A request's record -> the amount of text for the model, from which tokens are estimated until they are counted."""

from collections.abc import Mapping
from typing import Final

import msgspec

from tg_schema.conversation import ImagePart

TOKEN_BYTES: Final = 4
"""Bytes of text for a token."""
IMAGE_BYTES: Final = 4096
"""Bytes of text that have as many tokens as an image usually has, however large its file is."""


def measure_text(value: object) -> int:
    """Bytes of all text in a record; a token's id counts as a token, and an image as a usual one."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if isinstance(value, ImagePart):
        return IMAGE_BYTES
    if isinstance(value, msgspec.Struct):
        return sum(measure_text(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, Mapping):
        return sum(measure_text(name) + measure_text(each) for name, each in value.items())
    if isinstance(value, (tuple, list)):
        return TOKEN_BYTES * len(value) if value and isinstance(value[0], int) else sum(map(measure_text, value))
    return 0
