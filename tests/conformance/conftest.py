"""The buses that the suite runs on, and topics that no other test uses."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tg_base.bus.api import Bus
from tg_base.bus.open import open_bus


@pytest.fixture(params=["memory", pytest.param("pulsar", marks=pytest.mark.connected)])
def bus_url(request: pytest.FixtureRequest) -> str:
    """The URL of the bus under test, for a test that opens buses by itself."""
    url: str = "memory://" if request.param == "memory" else request.getfixturevalue("pulsar").service_url
    return url


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Bus]:
    """An open bus of every kind."""
    async with open_bus(bus_url) as opened:
        yield opened


@pytest.fixture
def kept() -> str:
    """A persistent topic."""
    return f"persistent://tg/request/{uuid4().hex}"


@pytest.fixture(params=["persistent", "non-persistent"])
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of either kind."""
    return f"{request.param}://tg/flow/{uuid4().hex}"
