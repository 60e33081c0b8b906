"""Streams, processes, spans and links -> names of their own: the one place where chance enters the protocol.

A simulation sets a source of its own, and gets the same names in every run.
"""

import secrets
from collections.abc import Callable


class Ids:
    """A source of names.

    Args:
        token_bytes: gives so many random bytes.

    Attributes:
        last_number: the highest number that it has given; 0 = none yet.
    """

    def __init__(self, token_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._token_bytes = token_bytes
        self.last_number = 0

    def token(self, size: int) -> str:
        """So many random bytes, as twice as many hexadecimal digits."""
        return self._token_bytes(size).hex()

    def number(self) -> int:
        """A number that this source has not given before, above all that it has."""
        self.last_number += 1
        return self.last_number


_source = Ids()


def set_source(source: Ids) -> None:
    """From now on the names of this process come from there."""
    global _source  # noqa: PLW0603 - one for the process, as `random` and `secrets` are
    _source = source


def new_id(size: int = 16) -> str:
    """A name that nothing else has: `size` random bytes in hexadecimal digits."""
    return _source.token(size)


def new_number() -> int:
    """A number above all that this process was given before."""
    return _source.number()


def last_number() -> int:
    """The highest number that this process was given; 0 = none yet."""
    return _source.last_number
