"""Ports for programs that start later: nobody else gets them by chance."""

import socket

from tests.free_port import HIGHEST, LOWEST, FreePorts, free_port


def test_each_is_another_one() -> None:
    given = [free_port() for _ in range(1500)]
    assert len({*given}) == 1500
    assert LOWEST <= min(given) <= max(given) <= HIGHEST


def test_one_that_is_taken_is_not_given() -> None:
    low = free_port()
    with socket.create_server(("127.0.0.1", low)):
        assert low < FreePorts(low, low + 20).take() <= low + 20
