"""`python -m tests.hostile_inputs --seed 7 --size 40`: other and larger inputs, and every wrong body at every door.

With as many seeds as `door_cases.EVERY`, each place of each door gets all that its kind has.
"""

import argparse
import asyncio
from itertools import product

from tests.hostile_inputs.bodies import make_bodies
from tests.hostile_inputs.door_cases import EVERY
from tests.hostile_inputs.run import find_unbounded
from tests.hostile_inputs.test_hostile_inputs import find_defects
from tg_base.telemetry import configure_log

MODULES = ("tests.hostile_inputs.readers", "tests.hostile_inputs.door_cases")


def main() -> int:
    """0 = all of them ended within their bounds, and none met a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_inputs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed of what is drawn (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=EVERY, help="how many seeds (default: %(default)s)")
    parser.add_argument("--size", type=int, default=40, help="levels and repetitions (default: %(default)s)")
    arguments = parser.parse_args()
    configure_log("json", "error")
    found = [f"defect: {each}" for each in asyncio.run(find_defects(list(make_bodies())))]
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    for seed, module in product(seeds, MODULES):
        unbounded = asyncio.run(find_unbounded(seed=seed, size=arguments.size, module=module))
        found += [f"seed {seed}: {unbounded}"] if unbounded else []
    print("\n".join(found) or "all ended within their bounds")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
