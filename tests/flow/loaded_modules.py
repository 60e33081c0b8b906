"""A command's process -> the modules that it has loaded."""

import sys

from tests.flow.command import Ended, ran

HEAVY = {"openai", "pulsar", "_pulsar", "llama_cpp", "jinja2", "tg_base", "tg_flow", "tg_gateway", "structlog"}


HEAVY |= {"rich", "prompt_toolkit"}


SHOW = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from {package}.start import start_{command}
start_{command}()
"""


async def shown(package: str, command: str, *arguments: str) -> Ended:
    """Run `start_COMMAND` of a package, and have the modules that it has loaded on stderr."""
    return await ran(sys.executable, "-c", SHOW.format(package=package, command=command), *arguments)
