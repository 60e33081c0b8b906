"""Installed packages -> further pages beside `/metrics`, by the entry points of the group `tokengrid.pages`."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from aiohttp import web

from tg_base.runtime import find_entry_points


class Page(ABC):
    """What a package shows of this process to operators: a gateway's key for it needs `admin = true`.

    An entry point names the class; each server makes one.

    Attributes:
        path: where it is.
        summary: what it does, for the OpenAPI document.
        answer: the type of its JSON.
    """

    path: ClassVar[str]
    summary: ClassVar[str]
    answer: ClassVar[Any]

    @abstractmethod
    async def show(self, request: web.Request) -> web.Response:
        """The page as it is now."""


def find_pages() -> tuple[type[Page], ...]:
    """The pages of all packages that are installed; each is imported."""
    return tuple(point.load() for point in find_entry_points("tokengrid.pages"))
