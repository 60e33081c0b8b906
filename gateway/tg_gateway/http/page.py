"""Installed packages -> further pages in addition to `/metrics`, by the entry points of the group `tokengrid.pages`."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import structlog
from aiohttp import web

from tg_base.runtime import find_entry_points, translate_defects
from tg_schema.errors import Unavailable

log = structlog.get_logger()

PAGES: Final = "tokengrid.pages"
"""The group of entry points."""


class Page(ABC):
    """A page of a package for operators: a gateway's key for it needs `admin = true`.

    An entry point names the class; each server makes one.

    Attributes:
        path: the path of the page.
        summary: a short description, for the OpenAPI document.
        answer: the type of its JSON.
    """

    path: ClassVar[str]
    summary: ClassVar[str]
    answer: ClassVar[Any]

    @abstractmethod
    async def show(self, request: web.Request) -> web.Response:
        """The current page."""


def find_pages() -> tuple[type[Page], ...]:
    """The pages of all packages that are installed; each is imported.

    Raises:
        Unavailable: a page cannot be loaded; the message names its distribution.
    """
    pages: list[type[Page]] = []
    for point in find_entry_points(PAGES):
        name = f'the page "{point.name}" of {point.dist.name if point.dist else point.value}'
        with translate_defects(Unavailable, f"{name} cannot be loaded: mend or uninstall it", "gateway.page", log):
            pages.append(point.load())
    return tuple(pages)
