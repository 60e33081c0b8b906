"""Pieces of one output item -> its events and its final form; the kinds of items are in the files beside this one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from tg_gateway.dialects.responses.events import Event, ItemAdded, ItemDone
from tg_gateway.dialects.responses.response_object import ItemStatus, OutputItem


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Where an item stands in its response.

    Attributes:
        response: the response's id without its prefix.
        index: in the output.
    """

    response: str
    index: int

    def make_id(self, prefix: str) -> str:
        """The item's id."""
        return f"{prefix}_{self.response}{self.index:04x}"


class ItemDraft(ABC):
    """One item while the model writes it. Everything added before `emit` is sent as one delta.

    Args:
        item_id: the same in all events and in the final response.
        place: where the item stands.
    """

    sealed = False
    """Whether nothing more can belong to it."""
    status: ItemStatus = "in_progress"
    """The item's status in the last event."""

    def __init__(self, item_id: str, place: ItemPlace) -> None:
        self.id = item_id
        self.index = place.index
        self.begun = False

    @property
    def may_end(self) -> bool:
        """Whether it is whole as soon as another item has begun."""
        return True

    @abstractmethod
    def make_item(self, status: ItemStatus) -> OutputItem:
        """The item as it is now; empty while it is in progress and nothing of it was sent."""

    @abstractmethod
    def emit_rest(self) -> Iterator[Event]:
        """The events of what was added and not sent yet."""

    @abstractmethod
    def end_parts(self) -> Iterator[Event]:
        """The events that end its parts."""

    def emit(self) -> Iterator[Event]:
        """The events of all that was added since the last time."""
        if not self.begun:
            self.begun = True
            yield ItemAdded(self.index, self.make_item("in_progress"))
        yield from self.emit_rest()

    def finish(self, status: ItemStatus) -> Iterator[Event]:
        """The events of what was not sent yet, and those that end the item."""
        yield from self.emit()
        self.status = status
        yield from self.end_parts()
        yield ItemDone(self.index, self.make_item(status))
