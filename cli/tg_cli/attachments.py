"""Files and numbers of the command line -> parts of a request: schema, images, earlier turns, sampling."""

from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tg_schema import ImagePart, Message, Sampling, TextPart, decode
from tg_schema.errors import BadRequest

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
"""The first bytes of a file of each type."""


def make_sampling(temperature: float | None, max_tokens: int | None) -> Sampling | None:
    """None if nothing is set."""
    return None if temperature is None and max_tokens is None else Sampling(temperature, max_tokens=max_tokens)


def read_schema(file: Path) -> dict[str, Any]:
    """A JSON schema.

    Raises:
        UsageError: the file cannot be read, or is no JSON object.
    """
    try:
        return decode(dict[str, Any], _read_json(file))
    except BadRequest as error:
        raise click.UsageError(f"{file} is no JSON schema: {error.message}") from None


def read_history(file: Path) -> tuple[Message, ...]:
    """The turns of a saved conversation.

    Raises:
        UsageError: the file cannot be read, or is no list of messages.
    """
    try:
        return decode(tuple[Message, ...], _read_json(file))
    except BadRequest as error:
        raise click.UsageError(f"{file} is no JSON list of messages: {error.message}") from None


def write_history(file: Path, turns: Sequence[Message]) -> None:
    """Write turns so that `read_history` reads them.

    Raises:
        OSError: the file cannot be written.
    """
    file.write_bytes(msgspec.json.format(msgspec.json.encode(turns), indent=2) + b"\n")


def user_turn(text: str, images: Sequence[ImagePart]) -> Message:
    """A question, with images if there are any."""
    return Message("user", (*((TextPart(text),) if text else ()), *images) if images else text)


def read_image(file: Path) -> ImagePart:
    """An image.

    Raises:
        UsageError: the file cannot be read, or is no image.
    """
    data = _read(file)
    # A WebP file begins with RIFF, a length of four bytes, and WEBP.
    webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    kind = "image/webp" if webp else next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)
    if kind is None:
        raise click.UsageError(f"{file} is no image that models read: give a PNG, JPEG, GIF or WebP file")
    return ImagePart(media_type=kind, data=b64encode(data).decode())


def _read_json(file: Path) -> bytes:
    # Windows puts this mark before UTF-8.
    return _read(file).removeprefix(BOM_UTF8)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
