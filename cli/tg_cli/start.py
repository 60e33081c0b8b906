"""Script -> command: imports a command so that Ctrl-C ends it without a traceback, even during the import.

Nothing is imported before the interrupt handler is set; therefore the package's `__init__` is empty.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_INTERRUPTED = 130
"""The exit code for an interrupt, copied from `tg_cli.entry`, which would import a library."""


def start(module: str, command: str, answer: str | None = None) -> None:
    """Import a command's module, run the command, and exit. `answer` as for `tg_cli.entry.run`."""
    try:
        restore = _leave_when_interrupted()
        __import__(module)
        from tg_cli.entry import run

        restore()
        run(getattr(sys.modules[module], command), answer)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def start_chat() -> None:
    """`tg-chat`."""
    start("tg_cli.chat", "chat")


def start_agent() -> None:
    """`tg-invoke-agent`."""
    start("tg_cli.invoke_agent", "invoke_agent", "AgentResponse")


def start_llm() -> None:
    """`tg-invoke-llm`."""
    start("tg_cli.invoke_llm", "invoke_llm", "TextCompletionResponse")


def start_prompt() -> None:
    """`tg-invoke-prompt`."""
    start("tg_cli.invoke_prompt", "invoke_prompt", "PromptResponse")


def start_lmtp() -> None:
    """`tg-lmtp`."""
    start("tg_cli.lmtp", "talk_lmtp")


def start_models() -> None:
    """`tg-models`."""
    start("tg_cli.models", "list_models", "")


def start_replay() -> None:
    """`tg-replay`."""
    start("tg_cli.replay", "replay_stream", "")


def start_usage() -> None:
    """`tg-usage`."""
    start("tg_cli.usage", "show_usage", "")


def start_top() -> None:
    """`tg-top`."""
    start("tg_cli.top", "show_top", "")


def _leave_when_interrupted() -> "Callable[[], object]":
    """Exit at SIGINT: nothing has begun that must be closed. Returns a function that undoes this.

    An exception would not do: if one is raised while a class is created, Python 3.11 replaces it by another.
    """
    import os
    import signal

    before = signal.getsignal(signal.SIGINT)
    # A shell makes a command in the background ignore SIGINT; leave it so.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    return lambda: signal.signal(signal.SIGINT, before)
