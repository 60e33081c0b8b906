"""The order of `make test`, which has two processes: one runs all tests of the broker, each takes the next file.

The tests of the broker mostly wait, and start one broker for all; the others mostly compute. So they run side by side,
and never more than two at once.
"""

from collections.abc import Iterable
from typing import Final

import pytest
from typing_extensions import override
from xdist.scheduler import LoadFileScheduling

BROKER: Final = "the broker"
WITH_BROKER: Final = (
    "tests/conformance/",
    "tests/connected/",
    "tests/door_matrix/test_",
    "tests/envoy/test_shared_picks.py",
    "tests/flow/test_head_of_line.py",
    "tests/flow/test_lossless.py",
    "tests/flow/test_mixed_models.py",
    "tests/flow/test_poison.py",
    "tests/flow/test_redelivery.py",
    "tests/flow/test_stream_protocol.py",
    "tests/flow/test_warm_processes.py",
    "tests/same_answer/",
    "tests/unit/test_placement_exchange.py",
)
"""Where the tests that are marked `connected` begin. Who divides the tests knows their names alone, not their marks."""


class BrokerAndFiles(LoadFileScheduling):
    """All that may use the broker is one piece of work, each other file is one; they are begun in their order."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return BROKER if nodeid.startswith(WITH_BROKER) else super()._split_scope(nodeid)


def require_broker_named(items: Iterable[pytest.Item]) -> None:
    """Refuse a file that would start a second broker beside the first.

    Raises:
        pytest.UsageError: a test is marked `connected` in a file that `WITH_BROKER` does not name.
    """
    for item in items:
        if item.get_closest_marker("connected") is not None and not item.nodeid.startswith(WITH_BROKER):
            raise pytest.UsageError(f"{item.nodeid} uses the broker: name its file in tests/broker_and_files.py")
