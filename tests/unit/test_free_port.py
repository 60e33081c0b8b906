"""Ports for programs that start later: nobody else gets them by chance."""

import socket

from tests.free_port import HIGHEST, LOWEST, FreePorts, free_port


def test_each_is_another_one() -> None:
    given = [free_port() for _ in range(1500)]
    assert len({*given}) == 1500
    assert LOWEST <= min(given) <= max(given) <= HIGHEST


def test_one_that_is_taken_is_not_given() -> None:
    taken, free = free_port(), free_port()
    draws = iter([taken, taken, free])
    with socket.create_server(("127.0.0.1", taken)):
        assert FreePorts(lambda *_: next(draws)).take() == free


def test_one_that_was_given_is_not_given_again() -> None:
    first, second = free_port(), free_port()
    draws = iter([first, first, second])
    ports = FreePorts(lambda *_: next(draws))
    assert [ports.take(), ports.take()] == [first, second]
