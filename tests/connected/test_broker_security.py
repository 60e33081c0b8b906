"""A broker that wants a token and speaks TLS: who has both gets in, who has not gets one sentence and no secret."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker_security import BrokerSecurity
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer
from tg_base.bus import BusOptions, open_bus
from tg_schema.errors import BusError

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TOPIC = "persistent://tg/request/secured"


class Secured(NamedTuple):
    """The broker, and the files that a client needs."""

    server: PulsarServer
    security: BrokerSecurity
    folder: Path

    def options(self, subject: str, certificate: Path | None = None) -> BusOptions:
        """What a client of that name writes into its configuration."""
        token = self.folder / f"{subject}.token"
        token.write_text(self.security.token(subject), "utf-8")
        return BusOptions(token_file=token, trust_certs=certificate or self.security.certificate)

    def other_folder(self) -> Path:
        """Where keys of somebody else may lie."""
        other = self.folder / "other"
        other.mkdir()
        return other


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("security")
    security = BrokerSecurity(folder)
    with pulsar_or_skip(security.settings, security.token("admin")) as server:
        yield Secured(server, security, folder)


async def test_a_token_and_a_trusted_certificate_open_the_bus(secured: Secured) -> None:
    async with (
        open_bus(secured.server.tls_url, secured.options("admin")) as bus,
        bus.subscribe(TOPIC, "g") as deliveries,
        asyncio.timeout(20),
    ):
        await bus.ping()
        await bus.publish(TOPIC, b"secured", {"id": "1"})
        assert (await anext(deliveries)).body == b"secured"


async def test_a_token_from_the_environment_opens_it_without_tls(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_TOKEN", secured.security.token("admin"))
    async with open_bus(secured.server.service_url, BusOptions(token_env="BROKER_TOKEN")) as bus:
        await bus.publish(TOPIC, b"x", {})


async def test_no_token_a_forged_one_and_one_without_rights_are_refused(secured: Secured, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.write_text(secured.security.token("admin")[:-4] + "AAAA", "utf-8")

    async def refused(options: BusOptions) -> None:
        async with open_bus(secured.server.service_url, options) as bus:
            with pytest.raises(BusError) as error:
                await bus.publish(TOPIC, b"x", {})
            token = options.token()
            assert token is None or token not in error.value.message

    # Side by side: the client tries again for five seconds before it says so.
    await asyncio.gather(*map(refused, (BusOptions(), BusOptions(token_file=forged), secured.options("stranger"))))


async def test_a_certificate_that_nobody_vouches_for_is_refused(secured: Secured) -> None:
    options = secured.options("admin", BrokerSecurity(secured.other_folder()).certificate)
    async with open_bus(secured.server.tls_url, options) as bus:
        with pytest.raises(BusError):
            await bus.publish(TOPIC, b"x", {})


async def test_a_certificate_for_another_host_is_refused(secured: Secured) -> None:
    async with open_bus(secured.server.tls_url.replace("127.0.0.1", "localhost"), secured.options("admin")) as bus:
        with pytest.raises(BusError):
            await bus.publish(TOPIC, b"x", {})
