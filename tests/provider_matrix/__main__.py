"""`python -m tests.provider_matrix [--write]`: run every cell, print the tables; with --write, into the page."""

import asyncio
import sys

from tests.provider_matrix.case import Case, cases
from tests.provider_matrix.cell import Cell, play
from tests.provider_matrix.cells import CELLS
from tests.provider_matrix.table import PAGE, tables, written


def main() -> int:
    """Run everything; 1 if a cell neither works nor is refused as announced."""
    results: dict[tuple[str, str], bool | None] = {}
    failed = []
    for case in cases():
        for cell in CELLS:
            try:
                results[case.provider, cell.name] = asyncio.run(play(case, cell))
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a cell's task ends here
                failed.append(f"{case.provider}, {cell.name}: {type(error).__name__} {error}")
    if failed:
        print(*failed, sep="\n", file=sys.stderr)
        return 1

    def result(case: Case, cell: Cell) -> bool | None:
        return results[case.provider, cell.name]

    generated = tables(cases(), result)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written(PAGE.read_text(), generated))
    else:
        print(generated)
    return 0


if __name__ == "__main__":
    sys.exit(main())
