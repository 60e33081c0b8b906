"""Why a process cannot listen -> what its operator is told to do; the system makes the errors."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tg_base.runtime import explain_no_listening, open_listening_sockets


def reason_of(host: str, port: int) -> str:
    with pytest.raises((OSError, ValueError)) as failure:
        open_listening_sockets(host, port)
    error = failure.value
    assert isinstance(error, OSError | ValueError)
    return explain_no_listening(error, "give another --port")


@contextmanager
def no_further_file() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path("/dev/null").open("rb") as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(last.fileno(), soft), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        reason = reason_of("127.0.0.1", taken.getsockname()[1])
    assert reason == "the port is taken; give another --port"


@pytest.mark.parametrize("host", ["203.0.113.9", "a..b", "no.such.invalid"])
def test_a_host_that_is_not_here(host: str) -> None:
    assert reason_of(host, 0) == "the host is no address of this machine; correct it"


def test_no_file_is_left() -> None:
    """Where the port is fine, another one does not help."""
    with no_further_file():
        reason = reason_of("127.0.0.1", 0)
    assert reason == "too many files are open; raise ulimit -n"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied"), "the port is not allowed; give another --port"),
        (OSError(97, "other"), "Address family not supported by protocol; give another --port"),
        (OSError("without a number"), "taken or not allowed; give another --port"),
    ],
)
def test_what_this_machine_does_not_raise_for_everybody(error: OSError, reason: str) -> None:
    assert explain_no_listening(error, "give another --port") == reason
