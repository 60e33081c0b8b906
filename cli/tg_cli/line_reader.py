"""Keyboard or pipe -> messages: the interface of both."""

from typing import Final, Protocol

CONTINUED: Final = "\\"
"""A line that ends with it goes on in the next one."""


class LineReader(Protocol):
    """Where the user's messages come from.

    Attributes:
        interactive: whether a user types the messages; then a failure does not end the chat.
    """

    interactive: bool

    async def read(self) -> str | None:
        """The next message; None = there is none any more."""
