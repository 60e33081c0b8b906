"""How `make test` divides the tests: what shares a broker is one piece of work, any other file is one."""

import pytest

from tests.broker_and_files import BROKERS, BrokerAndFiles, require_broker_named

SHARED, SECOND, CONNECTED = BROKERS


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("tests/connected/test_draining.py::test_a[b::c]", CONNECTED),
        ("tests/connected/test_broker_roles.py::test_a", SHARED),
        ("tests/connected/test_partition.py::test_a", SECOND),
        ("tests/conformance/test_logs.py::test_a[memory]", SHARED),
        ("tests/unit/test_link.py::test_a[tests/connected/]", "tests/unit/test_link.py"),
        ("tests/unit/test_link.py::test_b", "tests/unit/test_link.py"),
    ],
)
def test_pieces_of_work(name: str, piece: str) -> None:
    assert BrokerAndFiles._split_scope(object.__new__(BrokerAndFiles), name) == piece


def test_a_file_that_would_start_a_second_broker_is_refused(request: pytest.FixtureRequest) -> None:
    require_broker_named([request.node])
    request.node.add_marker(pytest.mark.connected)
    with pytest.raises(pytest.UsageError, match=r"test_broker_and_files\.py.* name its file"):
        require_broker_named([request.node])
