"""A bus in memory that several parts of a test open by one URL, as processes open a broker."""

from typing import ClassVar

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus, BusOptions


class SharedBus(PassingBus):
    """`shared://`: each opening passes everything to `behind`, which the test sets, and closes."""

    behind: ClassVar[Bus]

    def __init__(self, url: str, options: BusOptions) -> None:
        super().__init__(self.behind)
