"""The source of a relayed answer: the stream of one request, or of a batch."""

from collections.abc import Callable
from typing import Any, Protocol, Self

from tg_schema import TgError


class Responses(Protocol):
    """`ResponseStream`, as far as the gateway uses it; its docstrings say what is promised."""

    @property
    def id(self) -> str:
        """The stream's id."""

    @property
    def request_bytes(self) -> int:
        """Bytes of the requests sent so far."""

    @property
    def came(self) -> float:
        """When the record that was read last arrived."""

    @property
    def complete(self) -> bool:
        """Whether nothing more comes."""

    @property
    def waiting(self) -> int:
        """Bytes that are buffered."""

    def poll(self) -> Any:
        """The next record, if there is one."""

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Set the function to call when there is something to poll."""

    def listen_accepted(self, listener: Callable[[], None], on_opening: Callable[[], None] | None = None) -> None:
        """Set the function to call when a processor works on it, and once before if its model is opened first."""

    def fail(self, error: TgError) -> None:
        """End it."""

    def __aiter__(self) -> Self:
        """Itself."""

    async def __anext__(self) -> Any:
        """The next record; waits for it."""
