"""Text of a TOML file -> its tables, or an error with its line."""

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from tg_schema.errors import BadRequest

_SPOT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_TUPLE = re.compile(r"\('[^)]*\)")


def parse_toml(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text.

    Args:
        text: all of it.
        file: where it is from, for errors.

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
    # Keys stand there as Python's tuples.
    words = _TUPLE.sub(lambda found: ".".join(re.findall(r"'([^']*)'", found[0])), _SPOT.sub("", reason))
    raise BadRequest(f"{file}, line {line}: not valid TOML: {words[:1].lower()}{words[1:]}")
