"""Rows of usage -> text: a table for people, or CSV for programs."""

import csv
import io
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from tg_schema.usage_report import USAGE_SUMS, UsageRow

NANO_DOLLARS: Final = 10**9
_HEADS: Final = ("CALLS", "INPUT", "CACHED", "OUTPUT", "COST $")


def write_csv(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    """All columns. An unknown value is an empty cell; the cost is in dollars, exact."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*by, *("cost_usd" if name == "cost" else name for name in USAGE_SUMS)))
    for row in rows:
        cells = {name: getattr(row, name) for name in (*by, *USAGE_SUMS)}
        cells["cost"] = None if row.cost is None else f"{Decimal(row.cost) / NANO_DOLLARS:f}"
        writer.writerow(cells.values())
    return text.getvalue()


def write_table(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    """The main columns. `-` means unknown, `+` that the true sum is larger, because some calls are not counted."""
    table = [(*(name.upper() for name in by), *_HEADS), *(tuple(_list_cells(by, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(
            f"{cell:<{width}}" if place < len(by) else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        for cells in table
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _list_cells(by: Sequence[str], row: UsageRow) -> Iterator[str]:
    for name in by:
        yield " ".join((getattr(row, name) or "-").split())
    yield str(row.calls)
    for count in (row.in_token, row.cached_token, row.out_token):
        yield "-" if count is None else f"{count}{'+' if row.uncounted_calls else ''}"
    more = "+" if row.unpriced_calls else ""
    yield "-" if row.cost is None else f"{Decimal(row.cost) / NANO_DOLLARS:.6f}{more}"
