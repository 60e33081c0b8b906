"""A broker that wants a token and speaks TLS: who has both gets in, who has not gets one sentence and no secret."""

import asyncio
from pathlib import Path

import pytest

from tests.broker_security import BrokerSecurity, SecuredBroker
from tg_base.bus import BusOptions, open_bus
from tg_schema.errors import BusError

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TOPIC = "persistent://tg/request/secured"


async def test_a_token_and_a_trusted_certificate_open_the_bus(secured: SecuredBroker) -> None:
    async with (
        open_bus(secured.server.tls_url, secured.options("admin")) as bus,
        bus.subscribe(TOPIC, "g") as deliveries,
        asyncio.timeout(20),
    ):
        await bus.ping()
        await bus.publish(TOPIC, b"secured", {"id": "1"})
        assert (await anext(deliveries)).body == b"secured"


async def test_a_token_from_the_environment_opens_it_without_tls(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_TOKEN", secured.security.token("admin"))
    async with open_bus(secured.server.service_url, BusOptions(token_env="BROKER_TOKEN")) as bus:
        await bus.publish(TOPIC, b"x", {})


async def test_no_token_a_forged_one_and_one_without_rights_are_refused(secured: SecuredBroker, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.write_text(secured.security.token("admin")[:-4] + "AAAA", "utf-8")

    async def refused(options: BusOptions, why: str) -> None:
        async with open_bus(secured.server.service_url, options) as bus:
            with pytest.raises(BusError, match=why) as error:
                await bus.publish(TOPIC, b"x", {})
            token = options.token()
            assert token is None or token not in error.value.message

    await asyncio.gather(
        refused(BusOptions(), "asks for a token; set token_file or token_env"),
        refused(BusOptions(token_file=forged), "rejects our token"),
        refused(secured.options("stranger"), "denies us this topic"),
    )


@pytest.mark.parametrize("use", ["publish", "subscribe", "ping"])
async def test_whatever_comes_first_tells_at_once_what_no_further_try_can_change(
    secured: SecuredBroker, use: str
) -> None:
    """The client would try again for as long as a call may take, with a line of the log for each try."""
    async with open_bus(secured.server.service_url) as bus, asyncio.timeout(4):
        uses = {
            "publish": lambda: bus.publish(TOPIC, b"x", {}),
            "subscribe": bus.subscribe(TOPIC, "g").__aenter__,
            "ping": bus.ping,
        }
        with pytest.raises(BusError, match="asks for a token"):
            await uses[use]()


async def test_a_token_that_comes_later_opens_the_same_bus(secured: SecuredBroker, tmp_path: Path) -> None:
    """A program that keeps its bus need not restart when its operator has mended the token."""
    file = tmp_path / "token"
    file.write_text("expired", "utf-8")
    async with open_bus(secured.server.service_url, BusOptions(token_file=file)) as bus:
        with pytest.raises(BusError, match="rejects our token"):
            await bus.ping()
        file.write_text(secured.security.token("admin"), "utf-8")
        await bus.ping()


async def test_a_certificate_that_nobody_vouches_for_is_refused(secured: SecuredBroker) -> None:
    other = secured.folder / "other"
    other.mkdir()
    options = secured.options("admin", BrokerSecurity(other).certificate)
    async with open_bus(secured.server.tls_url, options) as bus:
        with pytest.raises(BusError, match=r"certificate is refused .*set trust_certs"):
            await bus.publish(TOPIC, b"x", {})


async def test_a_certificate_for_another_host_is_refused(secured: SecuredBroker) -> None:
    async with open_bus(secured.server.tls_url.replace("127.0.0.1", "localhost"), secured.options("admin")) as bus:
        with pytest.raises(BusError, match=r"certificate is refused .*localhost.*name the host"):
            await bus.publish(TOPIC, b"x", {})


async def test_a_wrong_port_is_named_by_what_it_speaks(secured: SecuredBroker) -> None:
    ports = {
        secured.server.admin_url.replace("http", "pulsar"): "speaks HTTP",
        secured.server.tls_url.replace("+ssl", ""): r"write pulsar\+ssl://",
        secured.server.service_url.replace("pulsar:", "pulsar+ssl:"): "write pulsar://",
    }

    async def refused(url: str, why: str) -> None:
        async with open_bus(url, secured.options("admin")) as bus:
            with pytest.raises(BusError, match=why):
                await bus.ping()

    await asyncio.gather(*(refused(url, why) for url, why in ports.items()))
