"""A process that leaves while a provider is being imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

LEAVE = """
import asyncio, sys
from tg_flow.providers import open_provider

async def main():
    opening = asyncio.create_task(open_provider("never_imported:Provider", "m", {}))
    while "never_imported" not in sys.modules:
        await asyncio.sleep(0.005)

asyncio.run(main())
"""


def test_leaving_does_not_wait_for_an_import(tmp_path: Path) -> None:
    (tmp_path / "never_imported.py").write_text("import threading\nthreading.Event().wait()\n")
    code = f"import sys\nsys.path.append({str(tmp_path)!r})\n{LEAVE}"
    left = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert (left.returncode, left.stderr) == (0, "")
