"""Which policy serves how many requests in time: every policy on the same loads, in virtual time.

nice python -m bench.instances                                        all loads, three seeds (development)
nice python -m bench.instances --seeds 100-109 --jobs 2 --json FILE   the whole table
python -m bench.instances --loads prefix --rates hard --policies predicted-wait,informed
python -m bench.instances --trace FILE                                rows of Mooncake's format
python -m bench.instances --pickers 8 --loads prefix                  among which requests are spread [--unshared]
python -m bench.instances --picks                                     what a pick costs
"""

import argparse
import json
import math
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from bench.instances.loads import LOADS
from bench.instances.picks import measure_picks
from bench.instances.run import PEERS, Run, run
from bench.instances.table import mean_of, table
from bench.instances.trace import Trace, replay


def _numbers(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _names(text: str, known: Collection[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name.partition("/")[0] not in known]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=partial(_names, known=LOADS), default=",".join(LOADS))
    parser.add_argument("--rates", help="normal, hard, or numbers; of a trace: times its pace, 1 by default")
    policies = [*PEERS, "informed"]
    parser.add_argument("--policies", type=partial(_names, known=policies), default=",".join(policies))
    parser.add_argument("--seeds", type=_numbers, default=[0, 1, 2], help="one, or FIRST-LAST")
    parser.add_argument("--seconds", type=float, help="of arrivals; 30 by default, of a trace all")
    parser.add_argument("--trace", type=Path, help="rows of Mooncake's format, in place of the loads")
    parser.add_argument("--servers", type=int, default=8, help="that replay the trace")
    parser.add_argument("--objective", type=float, default=2.0, help="seconds to the first token in the trace")
    parser.add_argument("--picks", action="store_true", help="measure what a pick costs, and nothing else")
    parser.add_argument("--pickers", type=int, default=1, help="among which the requests are spread")
    parser.add_argument("--unshared", action="store_true", help="these pickers tell each other nothing")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    try:
        _complete(asked)
    except ValueError as error:
        parser.error(str(error))
    return asked


def _complete(asked: argparse.Namespace) -> None:
    """What is not given. A wrong trace is told here, before anything is simulated."""
    is_traced = asked.trace is not None
    asked.rates = (asked.rates or ("1" if is_traced else "normal,hard")).split(",")
    asked.seconds = asked.seconds or (math.inf if is_traced else 30.0)
    if is_traced:
        asked.loads, asked.trace = ["trace"], Trace(asked.trace, asked.servers, asked.objective)
        for rate in asked.rates:
            if rate in {"normal", "hard"}:
                raise ValueError(f"a trace has no rate {rate}; name numbers, by which its pace is multiplied")
            replay(asked.trace, float(rate), asked.seconds)


def _main() -> None:
    asked = _arguments()
    if asked.picks:
        print(measure_picks())
        return
    runs = [
        Run(load, rate, policy, seed, asked.seconds, asked.trace, asked.pickers, not asked.unshared)
        for load in asked.loads
        for rate in asked.rates
        for policy in asked.policies
        for seed in asked.seeds
    ]
    if asked.jobs > 1:
        with ProcessPoolExecutor(asked.jobs) as pool:
            scores = list(pool.map(run, runs, chunksize=len(asked.seeds)))
    else:
        scores = list(map(run, runs))
    rows = mean_of(runs, scores)
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps([row.as_dict() for row in rows], indent=1), "utf-8")


if __name__ == "__main__":
    _main()
