"""Shell -> command: runs a command; its outcome becomes an exit code and, after a failure, one sentence on stderr.

0    done
1    failed: the sentence says why and what to do
2    wrong usage
130  interrupted by Ctrl-C, the model stopped
141  the reader of the output has closed it (as for any program that is ended by SIGPIPE)
"""

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import click

from tg_cli.terminal_text import remove_controls

F = TypeVar("F", bound=Callable[..., Any])

STANDARD_ERROR = 2
"""Its descriptor (POSIX)."""
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_READER_LEFT = 141
GC_THRESHOLD_OBJECTS = 20_000
"""Threshold of generation 0 in a command, in place of Python's 700."""


class Failure(click.ClickException):
    """Ends a command with one sentence."""

    exit_code = EXIT_FAILED


class Interrupted(Exception):
    """Ctrl-C, after everything was closed."""


class ReaderLeft(Exception):
    """The reader of the output has closed it."""


def run(command: click.Command) -> NoReturn:
    """Run a command with the arguments of this process, and exit."""
    # Exclude imported objects from garbage collection: it took a tenth of the time to a command's first byte.
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 10, 10)
    _occupy_standard_descriptors()
    code = _outcome(command)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        # Lines of a log that a full disk has not taken; the interpreter would exit with 120 for them.
        _mute(STANDARD_ERROR)
    sys.exit(code)


def version_option(distribution: str) -> Callable[[F], F]:
    """Give a command `--version`: the version of the installed distribution, which is read when somebody asks."""
    return click.version_option(package_name=distribution, message="%(prog)s %(version)s")


def notify(sentence: str) -> None:
    """Tell the user something beside the answer, on stderr; a closed stderr is not a failure."""
    try:
        if sys.stderr is not None:
            # It may repeat what a gateway has said, or hold a model's name.
            shown = remove_controls(sentence) if sys.stderr.isatty() else sentence
            sys.stderr.write(f"{shown}\n")
            sys.stderr.flush()
    except OSError:
        _mute(STANDARD_ERROR)


def announce(line: str) -> None:
    """Say on stdout that a server runs. If stdout takes nothing, say it on stderr."""
    try:
        click.echo(line)
    except OSError as error:
        _mute(1)
        notify(f"the standard output takes nothing ({error.strerror}), and the server goes on; {line}")


def _outcome(command: click.Command) -> int:
    try:
        # Not standalone: click would print its errors in its own words, and exit by itself.
        code = command.main(prog_name=command.name, standalone_mode=False)
        if sys.stdout is not None:
            # Flush here: at exit the interpreter would print a traceback for an error.
            sys.stdout.flush()
    except click.UsageError as error:
        notify(describe_usage(error))
        return error.exit_code
    except click.ClickException as error:
        notify(f"{command.name}: {error.format_message()}")
        return error.exit_code
    except (Interrupted, click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (ReaderLeft, BrokenPipeError):
        _mute(1)
        return EXIT_READER_LEFT
    except OSError as error:
        # Standard output is on a full disk, say; whatever else a command reads or writes has its own errors.
        _mute(1)
        notify(f"{command.name}: the output cannot be written: {error.strerror}")
        return EXIT_FAILED
    return int(code or 0)


def describe_usage(error: click.UsageError) -> str:
    """What to tell the user of wrong usage; where an option is unknown, similar ones that the help lists."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        # The others are refused with a reason, or are another program's spellings.
        hidden = [option for option in error.ctx.command.params if isinstance(option, click.Option) and option.hidden]
        unlisted = {name for option in hidden for name in option.opts}
        similar = [name for name in error.possibilities or () if name not in unlisted]
        error = click.NoSuchOption(error.option_name, possibilities=similar, ctx=error.ctx)
    hint = f"\nTry '{error.ctx.command_path} --help' for help." if error.ctx is not None else ""
    usage = f"{error.ctx.get_usage()}\n" if error.ctx is not None else ""
    return f"{usage}Error: {error.format_message()}{hint}"


def _occupy_standard_descriptors() -> None:
    """Keep 0, 1 and 2 from becoming sockets where a program has been started with one closed: uvloop would abort."""
    # A sandbox may have no such file: most programs are started with all three.
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)


def _mute(descriptor: int) -> None:
    """Discard what the interpreter still flushes at exit, so that it does not fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
