"""The gateway's own paths, which no dialect has, in the OpenAPI document."""

from functools import partial
from typing import Any, Final

from tg_gateway.description import Description
from tg_gateway.dialects import Dialect, Mount
from tg_gateway.http import Alive, Ready, find_pages
from tg_gateway.openapi.row import Row
from tg_schema.errors import Unavailable

_describe = partial(Description, group="Gateway")
_METRICS: Final = "text/plain"


def list_own_rows(refusing: Dialect, failure: Any) -> tuple[Row, ...]:
    """Health, metrics, pages of installed packages, and the documentation itself.

    Args:
        refusing: the dialect that refuses for them.
        failure: the JSON of its refusals.
    """
    describe = partial(_describe, failure=failure)
    ready = describe(
        summary="Tell whether the gateway is of use", answer=Ready, failure=(failure, Ready), raises=(Unavailable,)
    )
    return (
        _make_row("/health", refusing, describe(summary="Tell whether the gateway lives", answer=Alive)),
        _make_row("/ready", refusing, ready),
        _make_row(
            "/metrics", refusing, describe(summary="Show the metrics", answer=str, media=_METRICS), keyless=False
        ),
        *(
            _make_row(page.path, refusing, describe(summary=page.summary, answer=page.answer), keyless=False)
            for page in find_pages()
        ),
        _make_row("/openapi.json", refusing, describe(summary="Describe all doors", answer=dict[str, Any])),
        _make_row("/docs", refusing, describe(summary="Show this document", answer=str, media="text/html")),
    )


def _make_row(path: str, refusing: Dialect, described: Description, *, keyless: bool = True) -> Row:
    return Row(Mount("GET", path, refusing, "", keyless=keyless), (described,))
