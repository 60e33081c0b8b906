"""What every test may ask for: the real broker, started once and only when somebody wants it."""

import os
from collections.abc import Iterator

import pytest

from tests.pulsar_distribution import PulsarMissing
from tests.pulsar_server import PulsarServer


@pytest.fixture(scope="session")
def pulsar() -> Iterator[PulsarServer]:
    """A real Apache Pulsar: `service_url`, `admin_url`. Tests share it, so each takes topics of its own.

    Where Java or Maven is missing the tests skip; with TOKENGRID_REQUIRE_PULSAR=1 they fail instead.
    """
    try:
        server = PulsarServer()
    except PulsarMissing as missing:
        if os.environ.get("TOKENGRID_REQUIRE_PULSAR") == "1":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with server:
        yield server
