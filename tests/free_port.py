"""A port that is told to a program before it listens there, for the programs that do not say which one they took.

The kernel gives away none of these by itself, neither to a client nor to who asks for port 0, so that nobody else of
the tests can take one between this call and the program's start, which is seconds later for a broker.
"""

import random
import socket
from collections.abc import Callable
from typing import Final

LOWEST, HIGHEST = 10_240, 32_767
"""Linux gives away 32,768 to 60,999, other systems 49,152 to 65,535."""
_draw: Final = random.SystemRandom().randint
"""Two runs at once, and the two processes of one run, are seeded alike and must not choose alike."""


class FreePorts:
    """Ports of loopback, each given once.

    Args:
        draw: a port by chance, of those from the first number to the second.
    """

    def __init__(self, draw: Callable[[int, int], int] = _draw) -> None:
        self._draw = draw
        self._given: set[int] = set()

    def take(self) -> int:
        """One on which nobody listens now."""
        while True:
            port = self._draw(LOWEST, HIGHEST)
            if port in self._given:
                continue
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self._given.add(port)
            return port


free_port: Final = FreePorts().take
"""A port of loopback on which nobody listens now; each call gives another one."""
