"""TOML file -> its text, bounded, and its tables, or an error that says what to do and where."""

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from tg_schema.errors import BadRequest

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Maximum size of a file that configures something, in bytes."""
_SPOT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_TUPLE = re.compile(r"\('[^)]*\)")


def read_text(file: Path, noun: str = "configuration") -> str:
    """The text of a file.

    Args:
        file: the file.
        noun: the kind of file, for errors.

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


def parse_toml(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text.

    Args:
        text: the whole text.
        file: the file that the text is from, for errors.

    Raises:
        BadRequest: it is not TOML; the message names the line and what is wrong there.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, str(error))
    except RecursionError:
        raise BadRequest(f"{file}: tables or lists are nested too deep") from None
    except ValueError:
        # Python refuses an integer of thousands of digits, even in well-formed TOML.
        raise BadRequest(f"{file}: a number has too many digits; shorten it") from None


def _refuse_syntax(text: str, file: Path, reason: str) -> NoReturn:
    # tomllib offers the line only in its message; at the end of the document it gives none.
    spot = _SPOT.search(reason)
    line = int(spot[1]) if spot and spot[1] else len(text.rstrip().splitlines()) or 1
    # Keys are Python tuples there.
    words = _TUPLE.sub(lambda found: ".".join(re.findall(r"'([^']*)'", found[0])), _SPOT.sub("", reason))
    raise BadRequest(f"{file}, line {line}: not valid TOML: {words[:1].lower()}{words[1:]}")
