"""`tg-serve` on a machine whose clock is wrong: python skewed_serve.py SECONDS_AHEAD ARGUMENT...

Only the clock on the wall is wrong, as on such a machine; the monotonic one knows no date.
"""

import sys
import time


def main() -> None:
    """Set the clock before anything of ours is imported, and serve."""
    ahead, wall = float(sys.argv.pop(1)), time.time
    time.time = lambda: wall() + ahead
    from tg_serve.start import start_serve  # noqa: PLC0415

    start_serve()


if __name__ == "__main__":
    main()
