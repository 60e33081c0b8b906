"""File -> its text, bounded, or an error that says what to do."""

from pathlib import Path

from tg_schema.errors import BadRequest

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Maximum size of a file that configures something, in bytes."""


def read_text(file: Path, noun: str = "configuration") -> str:
    """The text of a file.

    Args:
        file: the file.
        noun: what it is a file of, for errors.

    Raises:
        BadRequest: it is missing, unreadable, too large or not UTF-8.
    """
    try:
        with file.open("rb") as opened:
            # Do not use read_bytes: the path may name an endless device.
            data = opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise BadRequest(f"{file} is not there; name an existing {noun} file") from None
    except IsADirectoryError:
        raise BadRequest(f"{file} is a directory; name a {noun} file in it") from None
    except OSError:
        raise BadRequest(f"{file} cannot be read; check who may read it") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadRequest(f"{file} is larger than {MAX_FILE_BYTES} bytes; a {noun} is small")
    try:
        # Some editors put a byte order mark before the text.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRequest(f"{file}, line {line}: a byte that is not UTF-8; save the file as UTF-8") from None
