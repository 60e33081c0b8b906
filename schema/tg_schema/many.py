"""The lists of a request: any sequence for a program that makes it, a tuple when it is decoded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Many = Sequence
else:

    class Many:
        """`Many[T]` is decoded as `tuple[T, ...]`, since frozen records are compared and hashed."""

        def __class_getitem__(cls, item: Any) -> Any:
            return tuple[item, ...]
