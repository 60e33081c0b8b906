"""Keyboard or pipe -> messages: the interface that both readers have."""

from typing import Final, Protocol

CONTINUED: Final = "\\"
"""A line that ends with this continues in the next one."""


class LineReader(Protocol):
    """Where the user's messages come from.

    Attributes:
        interactive: whether a user types the messages; then a failure does not end the chat.
    """

    interactive: bool

    async def read(self) -> str | None:
        """The next message; None = there are no more."""
