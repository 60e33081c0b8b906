"""A command's process -> the modules that it has loaded."""

import sys

from tests.flow.command import Ended, ran

HEAVY = {"openai", "pulsar", "_pulsar", "llama_cpp", "jinja2", "tg_base", "tg_flow", "tg_gateway", "structlog"}


HEAVY |= {"rich", "prompt_toolkit"}


SHOW = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from {module} import main
main()
"""


async def shown(module: str, *arguments: str) -> Ended:
    """Run a command, and have the modules that it has loaded on stderr."""
    return await ran(sys.executable, "-c", SHOW.format(module=module), *arguments)
