"""Errors of a configuration -> the first one (at a start), or all of them (for a check)."""

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from tg_schema import TgError


class Findings:
    """The errors of a configuration. A start fails with the first one; a check collects all of them.

    Attributes:
        sentences: the messages without duplicates, in the order in which a start would meet them.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, error: TgError) -> None:
        """Add an error, unless another check has reported the same message."""
        if error.message not in self.sentences:
            self.sentences.append(error.message)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Add the error that ends the block, and continue after the block."""
        try:
            yield
        except TgError as error:
            self.add(error)


class FirstFinding(Findings):
    """Raises the first error, as a start does."""

    @override
    def add(self, error: TgError) -> None:
        raise error
