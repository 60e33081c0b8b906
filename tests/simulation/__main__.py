"""`python -m tests.simulation --seeds 2000`: try many seeds side by side, and say how to repeat those that fail."""

import argparse
import os
import sys

from tests.simulation.pinned import pin_hashes


def main() -> int:
    """0 = every seed kept all promises."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to try (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default: %(default)s)")
    parser.add_argument(
        "--until", default="", help="stop at the first seed that breaks one of these promises; any = any of them"
    )
    worlds = ("any", "themed", "permits", "routes", "waiting", "kept")
    parser.add_argument("--worlds", choices=worlds, default="any", help="of which kind")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: everything that happens")
    arguments = parser.parse_args()
    pin_hashes()
    from tests.simulation.seeds import hunt, many, one  # noqa: PLC0415 - only with the hashes pinned

    if arguments.seed is not None:
        return one(arguments.seed, arguments.worlds, verbose=arguments.verbose)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.until:
        return hunt(seeds, arguments.processes, arguments.worlds, frozenset(arguments.until.split(",")))
    return many(seeds, arguments.processes, arguments.worlds)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # At once: the tasks of killed processes never unwind, and would print tracebacks where the interpreter frees them.
    os._exit(code)
