"""Runs the cases in a process of their own, and says which of them has no bound."""

import asyncio
import json
import sys
from typing import Final

CPU_SECONDS: Final = 3.0
"""Of one case. Grammars take up to one; what has no bound takes minutes to years."""


async def find_unbounded(
    *, seed: int, size: int, module: str = "tests.hostile_inputs.readers", cpu_seconds: float = CPU_SECONDS
) -> str:
    """The case that was ended, or failed, and why; "" = none.

    Args:
        seed: of what is drawn.
        size: how many levels, alternatives and repetitions there are.
        module: has the cases, as `make_cases`.
        cpu_seconds: that a case may take.
    """
    command = ("-m", "tests.hostile_inputs.work", module, str(seed), str(size), str(cpu_seconds))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    begun = [line["begun"] for line in map(json.loads, out.splitlines()) if "begun" in line]
    return f"{begun[-1] if begun else 'the start'}: ended with {process.returncode}\n{err.decode()[-2000:]}"
