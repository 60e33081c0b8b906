"""Topics that no other test uses."""

from uuid import uuid4

import pytest


@pytest.fixture
def kept() -> str:
    """A persistent topic."""
    return f"persistent://tg/request/{uuid4().hex}"


@pytest.fixture(params=["persistent", "non-persistent"])
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of either kind."""
    return f"{request.param}://tg/flow/{uuid4().hex}"
