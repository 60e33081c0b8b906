"""AWS credentials that end and are fetched again, by a program that answers late."""

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import pytest

from tests.fakes.bedrock_server import BedrockServer
from tests.flow.test_bedrock import aws, opened, responses
from tests.flow.usage_records import record_here
from tests.within import within
from tg_base.runtime import start_daemon_thread
from tg_schema.errors import Unavailable

__all__ = ["aws"]


class CredentialProcess:
    """What boto3 runs for credentials: the first ones have ended, and the next ones come when `answer` is called."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "answer"
        (folder / "config").write_text(f"[default]\ncredential_process = cat {self.file}\n")
        self.file.write_text(_write_credentials("2000-01-01T00:00:00Z"))
        self._pipe: TextIO | None = None

    async def wait_until_asked(self) -> None:
        """Wait until it runs for the second time, and let it wait."""
        self._pipe = await within(20, start_daemon_thread(lambda: self.file.open("w"), "credentials"))

    def hang(self) -> None:
        """Let it wait from now on."""
        self.file.unlink()
        os.mkfifo(self.file)

    def answer(self) -> None:
        """Let it go on, with credentials that last."""
        assert self._pipe is not None
        with self._pipe as pipe:
            pipe.write(_write_credentials("2100-01-01T00:00:00Z"))


def _write_credentials(end: str) -> str:
    keys = {"AccessKeyId": BedrockServer.key, "SecretAccessKey": "s3cret", "Expiration": end}
    return json.dumps({"Version": 1, **keys})


@pytest.fixture
def process(aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CredentialProcess]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    process = CredentialProcess(tmp_path)
    yield process
    if process.file.is_fifo():  # one that still waits would keep this process from its end
        os.close(os.open(process.file, os.O_RDWR))


async def test_credentials_that_do_not_come_hold_up_nobody_else(process: CredentialProcess) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with BedrockServer.running() as server, opened(server.url) as service:
        process.hang()
        asking = asyncio.create_task(responses(service))
        await process.wait_until_asked()
        await within(5, loop.getaddrinfo("127.0.0.1", 80))
        process.answer()
        assert (await asking)[-1].finish_reason == "stop"


async def test_a_call_left_before_it_was_signed_is_none(process: CredentialProcess) -> None:
    records = record_here()
    async with BedrockServer.running() as server, opened(server.url) as service:
        process.hang()
        asking = asyncio.create_task(responses(service))
        await process.wait_until_asked()
        asking.cancel()
        await asyncio.wait([asking])
        process.answer()
        await responses(service)
    assert [record.outcome for record in records] == ["complete"]


async def test_a_model_that_was_closed_says_so() -> None:
    async with BedrockServer.running() as server:
        async with opened(server.url) as service:
            pass
        with pytest.raises(Unavailable, match="was closed"):
            await responses(service)
        assert server.exchanges == []
