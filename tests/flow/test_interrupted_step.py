"""SIGINT -> a command's task: cancelled between two steps of its loop, and not in the middle of one."""

import subprocess
import sys

PROGRAM = """
import asyncio, os, signal
from tg_cli.endings import Interrupted
from tg_cli.invocation import run_call

def tell(news):
    if not news.done():
        os.kill(os.getpid(), signal.SIGINT)
        [None for _ in range(1000)]  # Python looks for signals between instructions.
        news.set_result(None)

async def work():
    loop = asyncio.get_running_loop()
    news = loop.create_future()
    loop.call_soon(tell, news)
    await news
    await loop.create_future()

try:
    run_call(work())
except Interrupted:
    print("interrupted")
"""


def test_what_tells_a_result_is_not_interrupted_within() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
