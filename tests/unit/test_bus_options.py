"""Where the broker's token comes from, what is refused before anything connects, and what names the broker."""

import socket
from pathlib import Path

import pytest

from tests.installed_package import install_package
from tg_base.bus import BusOptions, open_bus
from tg_base.bus.memory import MemoryBus
from tg_base.bus.pulsar.client import Broker, error_of
from tg_schema.errors import BadRequest, BusError, Internal, Unavailable

URL = "pulsar://127.0.0.1:9"


def test_without_a_named_token_there_is_none() -> None:
    assert BusOptions().token() is None


def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_TOKEN", " secret\n")
    assert BusOptions(token_env="BROKER_TOKEN").token() == "secret"


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert BusOptions(token_file=file).token() == "secret"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
async def test_a_token_file_that_holds_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadRequest, match="token"):
        async with open_bus(URL, BusOptions(token_file=file)):
            pass


async def test_a_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROKER_TOKEN", raising=False)
    with pytest.raises(BadRequest, match="BROKER_TOKEN"):
        async with open_bus(URL, BusOptions(token_env="BROKER_TOKEN")):
            pass


async def test_authorities_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="authorities"):
        async with open_bus("pulsar+ssl://127.0.0.1:9", BusOptions(trust_certs=tmp_path / "none.pem")):
            pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://a:secret@b:9092", 'there is no bus "kafka"; known are memory, pulsar; write memory://'),
        ("kafka:secret", 'there is no bus "kafka"'),
        ("", 'there is no bus ""; known are memory, pulsar'),
        ("memory://here", "the bus in memory has no address: write memory://"),
        ("memory", "write memory://"),
        ("pulsar://", "write pulsar://host:port"),
        ("pulsar", "write pulsar://host:port"),
        ("pulsar://broker:secret", "write pulsar://host:port"),
        ("pulsar://[::1", "write pulsar://host:port"),
        ("pulsar+tls://broker", "write pulsar://host:port or pulsar+ssl://host:port"),
    ],
)
async def test_a_url_of_no_bus_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        async with open_bus(url):
            pass
    assert words in refused.value.message
    assert "secret" not in refused.value.message
    assert refused.value.option == ("url",)


CARRIER = """
from tg_base.bus.memory import MemoryBus

class Carrier(MemoryBus):
    def __init__(self, url, options):
        super().__init__()
        self.made_of = url, options
        if "here" not in url:
            raise ValueError("secret")
"""


async def test_a_bus_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "carrier_bus.py").write_text(CARRIER)
    (tmp_path / "needs_a_client.py").write_text("import a_client_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = "[tokengrid.buses]\ncarrier = carrier_bus:Carrier\nneedy = needs_a_client:Bus [client]\n"
    install_package(tmp_path / "site", monkeypatch, "tokengrid-zoo", points)
    options = BusOptions(listener_name="some")
    async with open_bus("carrier+tls://here", options) as bus:
        assert isinstance(bus, MemoryBus)
        assert vars(bus)["made_of"] == ("carrier+tls://here", options)
    with pytest.raises(BusError, match="closed"):
        await bus.ping()
    with pytest.raises(Unavailable, match=r'the bus "needy://" needs .*; run: pip install "tokengrid-zoo\[client\]"'):
        async with open_bus("needy://here"):
            pass
    with pytest.raises(Internal, match='the bus "carrier://" has a defect; the log says which'):
        async with open_bus("carrier://far"):
            pass
    with pytest.raises(BadRequest, match='no bus "carier"; known are carrier, memory, needy, pulsar; write'):
        async with open_bus("carier://here"):
            pass


def test_a_broker_that_is_not_there_is_named_with_what_the_system_says() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        url = f"pulsar://somebody:secret@{address}"
        error = Broker(url, BusOptions()).explain(BusError("the broker did not answer in time"))
        assert error.message == (
            f"no broker answers at pulsar://{address}: Connection refused; start it, or correct the URL of the bus"
        )


def test_a_broker_that_refuses_is_named_with_its_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"pulsar://127.0.0.1:{listening.getsockname()[1]}"
        refusal = error_of("AuthorizationError")
        assert isinstance(refusal, BusError)
        error = Broker(address, BusOptions()).explain(refusal)
        assert error.message == (
            f"the broker denies us this topic; an operator must grant our role access to it ({address})"
        )
