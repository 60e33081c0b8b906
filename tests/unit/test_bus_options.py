"""Where the broker's token comes from, what is refused before anything connects, and what names the broker."""

import socket
from pathlib import Path

import pytest

from tg_base.bus import BusOptions, open_bus
from tg_base.bus.pulsar.client import Broker, error_of
from tg_schema.errors import BadRequest, BusError

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
