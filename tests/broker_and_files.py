"""The order of `make test`, which has five processes: three run the tests of a broker each, each takes the next file.

The tests of a broker mostly wait, and start one broker for all; the others mostly compute. So those of the brokers are
begun first, and the others fill the time in which they wait.
"""

from collections.abc import Iterable
from typing import Final

import pytest
from typing_extensions import override
from xdist.scheduler import LoadFileScheduling

BROKERS: Final = {
    "the broker of what is shared and ended": (
        "tests/conformance/",
        "tests/connected/test_broker_",
        "tests/door_matrix/test_",
        "tests/picker/extproc/test_shared_picks.py",
        "tests/flow/test_stream_protocol.py",
        "tests/flow/test_lossless.py",
        "tests/flow/test_mixed_models.py",
        "tests/flow/test_redelivery.py",
        "tests/flow/test_several_gateways.py",
        "tests/flow/test_shared_health.py",
        "tests/flow/test_warm_processes.py",
        "tests/same_answer/",
        "tests/picker/pools/test_placement_exchange.py",
    ),
    "the second broker of tests/connected": tuple(f"tests/connected/test_{letter}" for letter in "prsu"),
    "the broker of tests/connected": ("tests/connected/",),
}
"""Each piece of work with a broker, and where its tests begin; the first that fits has a test.

Who divides the tests knows their names alone, not their marks.
"""


def piece_with_broker(nodeid: str) -> str | None:
    """The piece of work that a test belongs to; None = it uses no broker."""
    return next((piece for piece, beginnings in BROKERS.items() if nodeid.startswith(beginnings)), None)


class BrokerAndFiles(LoadFileScheduling):
    """All that may use one broker is one piece of work, each other file is one; they are begun in their order."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return piece_with_broker(nodeid) or super()._split_scope(nodeid)


def put_brokers_first(items: list[pytest.Item]) -> None:
    """The longest pieces begin at once; the order within each stays."""
    items.sort(key=lambda item: piece_with_broker(item.nodeid) is None)


def require_broker_named(items: Iterable[pytest.Item]) -> None:
    """Refuse a file that would start one more broker.

    Raises:
        pytest.UsageError: a test is marked `connected` in a file that `BROKERS` does not name.
    """
    for item in items:
        if item.get_closest_marker("connected") is not None and piece_with_broker(item.nodeid) is None:
            raise pytest.UsageError(f"{item.nodeid} uses the broker: name its file in tests/broker_and_files.py")
