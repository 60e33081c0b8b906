"""What is missing skips a test, and fails it where every test must run."""

import socket

import pytest

from tests.missing import REQUIRE_ALL, require_free_port


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_port_that_is_taken(required: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE_ALL, required)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(outcome, match=f"something listens on port {port}"):
            require_free_port(port)


def test_a_port_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE_ALL, "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    require_free_port(port)
