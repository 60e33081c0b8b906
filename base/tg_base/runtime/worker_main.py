"""Pipe -> function -> pipe: the main function of a worker process, which `WorkerProcess` starts and calls.

The process ends when its standard input ends, so it never outlives the process that started it, however that one ends.
"""

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any, BinaryIO, Final, Literal, NoReturn

import msgspec
import structlog

from tg_base.runtime.defects import translate_defects
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal

log = structlog.get_logger()

MAX_LINES: Final = 64
"""Log lines of one call that are passed on."""
NICENESS: Final = 5
"""Added to the process's niceness: the streams of everybody else come first."""
SIZE_BYTES: Final = 8
"""Bytes of the length that precedes each message."""


class Unpicklable(Exception):
    """A function's argument or result cannot be pickled, or its module cannot be imported in another process.

    A function may raise it, too.
    """


UNPICKLABLE: Final = (pickle.PickleError, AttributeError, ImportError, TypeError)
"""The exceptions of pickling or unpickling a value that cannot travel."""

Line = tuple[str, dict[str, Any]]
"""A log line: its level and its fields, "event" among them."""


class Reply(msgspec.Struct, frozen=True):
    """A message of a worker to its caller.

    Attributes:
        kind: "returned" and "raised" end a call; "asked" is a question to the caller.
        value: the error, or the question. A result may be large, so it follows as a pickled message of its own.
        lines: the logged lines.
    """

    kind: Literal["returned", "raised", "asked"]
    value: Any = None
    lines: tuple[Line, ...] = ()


class _Channel:
    """This process's two pipes. Prints are redirected to stderr, since stdout carries only replies."""

    def __init__(self) -> None:
        self._input: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def receive(self) -> bytes:
        """The next message; at the pipe's end, the process exits."""
        head = self._input.read(SIZE_BYTES)
        size = int.from_bytes(head, "big")
        data = self._input.read(size)
        if len(head) < SIZE_BYTES or len(data) < size:
            os._exit(0)
        return data

    def send(self, reply: Reply, result: bytes | None = None) -> None:
        """Send a reply; if nobody reads any more, the process exits."""
        try:
            for data in (write_pickle(reply), result):
                if data is not None:
                    self._output.write(len(data).to_bytes(SIZE_BYTES, "big"))
                    self._output.write(data)
            self._output.flush()
        except BrokenPipeError:
            os._exit(0)


_channels: list[_Channel] = []


def ask_caller(question: Any) -> Any:
    """Ask the process whose call runs here, and wait for its answer.

    Raises:
        TgError: the answer is an error.
    """
    (channel,) = _channels
    channel.send(Reply("asked", question))
    answer = pickle.loads(channel.receive())  # noqa: S301 - from the process that started us
    if isinstance(answer, TgError):
        raise answer
    return answer


def main() -> NoReturn:
    """Serve the calls that come."""
    channel = _Channel()
    _channels.append(channel)
    # A supervisor may signal all processes of a service: the parent decides when this one ends, after its call.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICENESS)
    sys.path[:] = pickle.loads(channel.receive())  # noqa: S301 - as above
    lines: list[Line] = []
    structlog.configure(processors=[_keep_in(lines)])
    # A call allocates much and frees it at its end; its cycles are collected between calls. Modules and caches survive,
    # and would cost each later collection a tenth of a second.
    gc.disable()
    while True:
        reply, result = _serve(channel.receive())
        channel.send(msgspec.structs.replace(reply, lines=tuple(lines)), result)
        del result
        lines.clear()
        gc.collect()
        gc.freeze()


def _serve(pickled: bytes) -> tuple[Reply, bytes | None]:
    defect = "a worker process failed; the log says why"
    try:
        with translate_defects(Internal, defect, "worker.defect", log, known=(Unpicklable,)):
            return Reply("returned"), _call(pickled)
    except (TgError, Unpicklable) as error:
        return Reply("raised", error), None


def _call(pickled: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(pickled)  # noqa: S301 - as above
    except UNPICKLABLE as error:
        raise Unpicklable(str(error)) from None
    return write_pickle(function(*arguments))


def write_pickle(value: Any) -> bytes:
    """Pickle a value for another process of this program.

    Raises:
        Unpicklable: see there.
        BadRequest: the value is nested too deep, as only a client's JSON can be.
    """
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except RecursionError:
        raise BadRequest("the request is nested too deep") from None
    except UNPICKLABLE as error:
        raise Unpicklable(str(error)) from None


def _keep_in(lines: list[Line]) -> Callable[..., NoReturn]:
    def keep(logger: object, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        fields = dict(event)
        if fields.pop("exc_info", None):
            fields["traceback"] = traceback.format_exc()
        if len(lines) < MAX_LINES:
            lines.append((method, fields))
        raise structlog.DropEvent

    return keep
