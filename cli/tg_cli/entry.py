"""Shell -> command: runs a command; its outcome becomes an exit code and, after a failure, one sentence on stderr.

With `--json` the error is also the last line of stdout.

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

from tg_cli.endings import EXIT_FAILED, STANDARD_ERROR, Failure, Interrupted, ReaderLeft, mute, notify

F = TypeVar("F", bound=Callable[..., Any])

EXIT_INTERRUPTED = 130
EXIT_READER_LEFT = 141
GC_THRESHOLD_OBJECTS = 20_000
"""Threshold of generation 0 in a command, in place of Python's 700."""


def run(command: click.Command, answer: str | None = None) -> NoReturn:
    """Run a command with the arguments of this process, and exit.

    Args:
        command: the command.
        answer: the name in tg_schema of the record that it prints with `--json`; "" = it prints another object,
            None = it has no `--json`.
    """
    # Exclude imported objects from garbage collection: it took a tenth of the time to a command's first byte.
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 10, 10)
    _occupy_standard_descriptors()
    code = _outcome(command, answer)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        # A full disk has not taken some lines of the log; without this, the interpreter would exit with 120.
        mute(STANDARD_ERROR)
    sys.exit(code)


def version_option(distribution: str) -> Callable[[F], F]:
    """Give a command `--version`: the version of the installed distribution, read only when it is asked for."""
    return click.version_option(package_name=distribution, message="%(prog)s %(version)s")


def announce(line: str) -> None:
    """Say on stdout that a server runs, or on stderr if stdout cannot be written."""
    try:
        click.echo(line)
    except OSError as error:
        mute(1)
        notify(f"the standard output cannot be written ({error.strerror}), but the server goes on; {line}")


def _outcome(command: click.Command, answer: str | None) -> int:
    try:
        code = _run(command, answer)
        if sys.stdout is not None:
            # Flush here: at exit the interpreter would print a traceback for an error.
            sys.stdout.flush()
    except (ReaderLeft, BrokenPipeError):
        mute(1)
        return EXIT_READER_LEFT
    except OSError as error:
        # For example, the disk is full. Everything else that a command reads or writes has its own errors.
        mute(1)
        notify(f"{command.name}: the output cannot be written: {error.strerror}")
        return EXIT_FAILED
    return code


def _run(command: click.Command, answer: str | None) -> int:
    try:
        # Do not run standalone: click would print its errors in its own words, and exit by itself.
        return int(command.main(prog_name=command.name, standalone_mode=False) or 0)
    except (click.ClickException, Interrupted, click.Abort, KeyboardInterrupt) as error:
        # After wrong usage, click does not report the options.
        if answer is not None and "--json" in sys.argv:
            # With stdout closed, the exit code and the sentence on stderr still tell the error.
            with suppress(Failure, ReaderLeft):
                _print_error(error, answer)
        if isinstance(error, click.UsageError):
            notify(describe_usage(error))
        elif isinstance(error, click.ClickException):
            notify(f"{command.name}: {error.format_message()}")
        return error.exit_code if isinstance(error, click.ClickException) else EXIT_INTERRUPTED


def _print_error(error: BaseException, answer: str) -> None:
    """Print the error as an answer's last record, unless the output failed or nobody reads it after Ctrl-C."""
    # Import the parts for failures only here: --help stays quick.
    import asyncio

    import tg_schema
    from tg_cli.output import Output
    from tg_cli.renderer import record_line
    from tg_schema.errors import BadRequest, Cancelled

    output = Output()
    if isinstance(error, click.UsageError):
        error = Failure("", BadRequest(_suggest_listed(error).format_message()))
    told = getattr(error, "error", None) if isinstance(error, click.ClickException) else Cancelled("stopped by Ctrl-C")
    if told is not None and not (isinstance(told, Cancelled) and output.is_blocked()):
        record = getattr(tg_schema, answer).from_error(told.record) if answer else None
        line = record_line(record) if record is not None else tg_schema.encode({"error": told.record})
        asyncio.run(output.json(line))


def _suggest_listed(error: click.UsageError) -> click.UsageError:
    """The same error, but if an option is unknown, it suggests only similar options that the help lists."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        # Hidden options are refused with a reason, or are another program's spellings.
        hidden = [option for option in error.ctx.command.params if isinstance(option, click.Option) and option.hidden]
        unlisted = {name for option in hidden for name in option.opts}
        similar = [name for name in error.possibilities or () if name not in unlisted]
        return click.NoSuchOption(error.option_name, possibilities=similar, ctx=error.ctx)
    return error


def describe_usage(error: click.UsageError) -> str:
    """The message for the user after a usage error."""
    error = _suggest_listed(error)
    hint = f"\nTry '{error.ctx.command_path} --help' for help." if error.ctx is not None else ""
    usage = f"{error.ctx.get_usage()}\n" if error.ctx is not None else ""
    return f"{usage}Error: {error.format_message()}{hint}"


def _occupy_standard_descriptors() -> None:
    """Open 0, 1 and 2 if the program was started with one of them closed: uvloop aborts if one becomes a socket."""
    # A sandbox may have no /dev/null. Most programs are started with all three open.
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
