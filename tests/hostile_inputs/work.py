"""Runs cases one after the other, each within a bound of this process's CPU time: what goes beyond it is ended.

No wall clock is asked, so a loaded machine changes nothing. The system's timer of CPU time ends a process also while it
is within a library, which no exception would interrupt.
"""

import json
import resource
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from tests.hostile_inputs.readers import REFUSALS

MAX_MEMORY_BYTES = 1024**3
"""That this process may have had at once."""
MAX_ADDRESSES_BYTES = 8 * 1024**3
"""At which the system refuses more, so that a case cannot take the machine's memory."""


def main(module: str, seed: int, size: int, cpu_seconds: float) -> None:
    """Say what begins and what ended, as JSON lines."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESSES_BYTES, MAX_ADDRESSES_BYTES))
    for name, run in import_module(module).make_cases(seed, size):
        print(json.dumps({"begun": name}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        start = time.process_time()
        try:
            run()
        except REFUSALS as refused:
            said = str(refused) or type(refused).__name__
        else:
            said = "done"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"ended": name, "cpu": time.process_time() - start, "said": said[:100]}), flush=True)
        peak = read_peak_bytes()
        assert peak < MAX_MEMORY_BYTES, f"{name}: {peak >> 20} MiB"


def read_peak_bytes() -> int:
    """The most memory that this program has had. `ru_maxrss` counts that of the process which started it, too."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
