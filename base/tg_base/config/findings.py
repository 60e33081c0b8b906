"""Errors of a configuration -> who started, or checks it: the first one, or all of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from tg_schema import TgError


class Findings:
    """What is wrong. A start ends with the first finding; a check goes on, and tells all.

    Attributes:
        sentences: the findings, each once, in the order in which a start meets them.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, error: TgError) -> None:
        """One more; what two places of the code say in the same words is one finding."""
        if error.message not in self.sentences:
            self.sentences.append(error.message)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """The error that ends the block is a finding, and the code behind the block goes on."""
        try:
            yield
        except TgError as error:
            self.add(error)


class FirstFinding(Findings):
    """The first one is raised: what a start does."""

    @override
    def add(self, error: TgError) -> None:
        raise error
