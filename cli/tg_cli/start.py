"""Script -> command: imports a command so that Ctrl-C ends it without a traceback, even during the import.

So nothing is imported before an interrupt is handled; the package's `__init__`, which runs first, is empty.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_INTERRUPTED = 130
"""The exit code of `tg_cli.entry`, which would import a library."""


def start(module: str) -> None:
    """Import a command's module and call its `main`, which exits."""
    try:
        restore = _leave_when_interrupted()
        __import__(module)
        restore()
        sys.modules[module].main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def start_chat() -> None:
    """`tg-chat`."""
    start("tg_cli.chat")


def start_agent() -> None:
    """`tg-invoke-agent`."""
    start("tg_cli.invoke_agent")


def start_llm() -> None:
    """`tg-invoke-llm`."""
    start("tg_cli.invoke_llm")


def start_prompt() -> None:
    """`tg-invoke-prompt`."""
    start("tg_cli.invoke_prompt")


def start_lmtp() -> None:
    """`tg-lmtp`."""
    start("tg_cli.lmtp")


def start_models() -> None:
    """`tg-models`."""
    start("tg_cli.models")


def start_usage() -> None:
    """`tg-usage`."""
    start("tg_cli.usage")


def _leave_when_interrupted() -> "Callable[[], object]":
    """End the process at SIGINT, since nothing has begun that would have to be closed. Returns what undoes this.

    An exception would not do: Python 3.11 makes another one of what is raised while a class is created.
    """
    import os
    import signal

    before = signal.getsignal(signal.SIGINT)
    # A shell has a command in the background ignore it.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    return lambda: signal.signal(signal.SIGINT, before)
