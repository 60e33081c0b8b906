"""The pipeline as processes before a model that counts, for the tests that break one of them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.broker_security import BrokerSecurity, SecuredBroker
from tests.connected.pipeline import Pipeline, pipeline
from tests.fakes.live_openai import LiveOpenAi
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer


@pytest.fixture
async def live_model() -> AsyncIterator[LiveOpenAi]:
    async with LiveOpenAi.listening() as provider:
        yield provider


@pytest.fixture
async def line(pulsar: PulsarServer, live_model: LiveOpenAi, tmp_path: Path) -> AsyncIterator[Pipeline]:
    """No part of it runs yet."""
    async with pipeline(live_model.url, pulsar.service_url, tmp_path) as line:
        yield line


@pytest.fixture
async def mortal_pulsar(pulsar: PulsarServer) -> AsyncIterator[PulsarServer]:
    """The broker that all tests share, for one that kills it; in the end it runs again, whatever became of the test."""
    yield pulsar
    if not pulsar.running:
        await asyncio.to_thread(pulsar.start)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One more broker, which asks for tokens and speaks TLS; who is not `admin` may do what a test grants."""
    folder = tmp_path_factory.mktemp("secured")
    security = BrokerSecurity(folder)
    with pulsar_or_skip(security.settings, security.token("admin")) as server:
        yield SecuredBroker(server, security, folder)
