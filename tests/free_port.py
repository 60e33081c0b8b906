"""A port that is told to a program before it listens there, for the programs that do not say which one they took.

The kernel gives away none of these by itself, neither to a client nor to who asks for port 0, so that nobody else of
the tests can take one between this call and the program's start, which is seconds later for a broker.
"""

import random
import socket
from typing import Final

LOWEST, HIGHEST = 10_240, 32_767
"""Linux gives away 32,768 to 60,999, other systems 49,152 to 65,535."""
_chance: Final = random.SystemRandom()
"""Two runs at once, and the two processes of one run, are seeded alike and must not choose alike."""
_given: Final[set[int]] = set()


def free_port() -> int:
    """A port of loopback on which nobody listens now; each call gives another one."""
    while True:
        port = _chance.randint(LOWEST, HIGHEST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
