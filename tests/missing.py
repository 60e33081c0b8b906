"""What a test needs and this machine lacks: the test is skipped, or fails where none may be."""

import os
import socket
from typing import NoReturn

import pytest

REQUIRE_ALL = "TOKENGRID_REQUIRE_ALL"
"""Environment variable; with "1", as `make test` sets it, every test must run."""
DEFAULT_PORT = 8888
"""Where our commands look for a gateway if nobody names one."""


def skip_or_fail(reason: str) -> NoReturn:
    """Skip this test; with TOKENGRID_REQUIRE_ALL=1 fail it, so that no run of CI leaves it out unnoticed."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def require_free_port(port: int = DEFAULT_PORT) -> None:
    """Skip or fail if something listens there."""
    with socket.socket() as probe:
        if probe.connect_ex(("localhost", port)) == 0:
            skip_or_fail(f"something listens on port {port} of this machine; end it, and run the test again")
