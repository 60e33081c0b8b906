"""`tg-serve` as a process: everything in one, on the memory bus, with a provider that the test holds by the hand."""

import asyncio
import hashlib
import json
import os
import re
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.fakes.gated_openai import GatedOpenAi
from tests.flow.command import SCRIPTS, ended, out_of, ran, started
from tests.free_port import free_port
from tg_client import TgClient
from tg_schema import TgError
from tg_schema.errors import Unavailable
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions

SERVE = "tg-serve"
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
async def provider() -> AsyncIterator[GatedOpenAi]:
    async with GatedOpenAi.listening() as provider:
        yield provider


@asynccontextmanager
async def serving(provider: GatedOpenAi, *options: str) -> AsyncIterator[tuple[Process, str]]:
    """A server that is ready, and its URL."""
    model = ("--model", "gated", "--provider", "openai", "--base-url", provider.url)
    async with started(SERVE, "--port", "0", *model, *options, OPENAI_API_KEY=KEY) as process:
        line = (await asyncio.wait_for(out_of(process).readline(), 60)).decode()
        found = re.fullmatch(
            r"ready: (http://127\.0\.0\.1:\d+/) serves text-completion \(gated of openai\), prompt \(\d+ templates\), "
            r"agent \(.*\); "
            r'try: tg-invoke-llm -u \1 "be brief" "What is Apache Pulsar\?"\n',
            line,
        )
        assert found, line
        yield process, found[1]


async def draining(url: str) -> None:
    """Return once the server takes no more requests."""
    async with ClientSession() as http:
        while True:
            async with http.get(f"{url}ready") as ready:
                if "shutting down" in await ready.text():
                    return


async def test_it_serves_and_stops(provider: GatedOpenAi) -> None:
    provider.gate.set()
    async with serving(provider, "-o", "temperature=0.5") as (process, url):
        async with TgClient(url, retries=0) as client:
            result = await client.flow().text_completion("be brief", "p")
            assert (result.text, result.in_token, result.out_token, result.finish_reason) == ("one two", 5, 2, "stop")
            assert (await client.flow().prompt("question", {"question": "q"})).text == "one two"
        assert provider.keys == [f"Bearer {KEY}"] * 2
        process.send_signal(signal.SIGTERM)
        done = await ended(process, within=10)
    assert (done.code, done.out) == (0, "")
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert [line["outcome"] for line in lines if line["event"] == "gateway.request"] == ["ok", "ok"]
    assert len({line["stream"] for line in lines if line["event"] == "request.done"}) == 3
    assert "canary" not in done.err


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGHUP)])
async def test_a_live_stream_may_finish(provider: GatedOpenAi, numbers: tuple[int, ...]) -> None:
    """A terminal that closes may send SIGHUP twice."""
    async with serving(provider) as (process, url), TgClient(url, retries=0) as client:
        async with client.flow().text_completion_stream("", "p") as chunks:
            texts = [(await anext(chunks)).response]
            for number in numbers:
                process.send_signal(number)
                await draining(url)
            with pytest.raises(Unavailable):
                await client.flow().text_completion("", "late")
            provider.gate.set()
            texts += [chunk.response async for chunk in chunks]
        assert "".join(text or "" for text in texts) == "one two"
        assert (await ended(process, within=10)).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stream_that_does_not_finish_ends_in_one_error(
    provider: GatedOpenAi, tmp_path: Path, number: int
) -> None:
    async with serving(provider, "--config", str(configured(tmp_path, "[gateway]\ndrain = 0.2"))) as (process, url):
        async with TgClient(url, retries=0) as client, client.flow().text_completion_stream("", "p") as chunks:
            assert (await anext(chunks)).response == "one "
            process.send_signal(number)
            with pytest.raises(TgError):
                await anext(chunks)
        await asyncio.wait_for(provider.left.wait(), 2)
        assert (await ended(process, within=10)).code == 0


async def test_nohup_keeps_it_running(provider: GatedOpenAi) -> None:
    command = f"trap '' HUP; exec {SCRIPTS / SERVE} --port 0 --model gated --provider openai --base-url {provider.url}"
    async with started("bash", "-c", command, OPENAI_API_KEY=KEY) as process:
        url = (await out_of(process).readline()).decode().split()[1]
        process.send_signal(signal.SIGHUP)
        provider.gate.set()
        async with TgClient(url, retries=0) as client:
            assert (await client.flow().text_completion("", "p")).text == "one two"
        process.terminate()
        assert (await ended(process)).code == 0


async def test_a_second_signal_ends_at_once(provider: GatedOpenAi) -> None:
    async with (
        serving(provider) as (process, url),
        TgClient(url, retries=0) as client,
        client.flow().text_completion_stream("", "p") as chunks,
    ):
        await anext(chunks)
        process.send_signal(signal.SIGTERM)
        await draining(url)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 2) == 128 + signal.SIGTERM
        with pytest.raises(TgError):
            await anext(chunks)


async def test_metrics_on_a_port_of_their_own(provider: GatedOpenAi) -> None:
    port = free_port()
    async with serving(provider, "--metrics-port", str(port)) as (process, _), ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{port}/metrics") as page:
            assert "tg_active_streams" in await page.text()
        for path, host, status in (
            ("ready", "localhost", 200),
            ("ready", "evil.example", 403),
            ("else", "localhost", 404),
        ):
            async with http.get(f"http://127.0.0.1:{port}/{path}", headers={"Host": host}) as answer:
                assert answer.status == status
        process.send_signal(signal.SIGTERM)
        assert (await ended(process, within=10)).code == 0


async def test_a_port_that_is_taken(provider: GatedOpenAi) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        model = ("--model", "gated", "--provider", "openai", "--base-url", provider.url)
        done = await ran(SERVE, *model, "--port", port, OPENAI_API_KEY=KEY)
    assert (done.code, done.out) == (1, "")
    wanted = f"{SERVE}: the gateway cannot listen on port {port} of 127.0.0.1: the port is taken; give another --port"
    assert done.err.splitlines()[-1] == wanted


async def test_a_host_that_cannot_be_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    file = configured(tmp_path, '[gateway]\nhost = "a..b"\nauth = "off"\n')
    with pytest.raises(Unavailable, match=r"cannot listen on port \d+ of a\.\.b: the host is no address"):
        async with launch(ServeOptions(file=file, port=0)):
            pass


async def test_the_ready_line_tells_the_model_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two models: the other serves, and no line says that both do."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    lacks_key = '[models.keyless]\nprovider = "mistral"\noptions = { key_variable = "NO_SUCH_KEY" }\n'
    flows = '[flows]\nfirst.text-completion.model = "any"\nsecond.text-completion.model = "keyless"\n'
    file = tmp_path / "tg.toml"
    file.write_text(f'[models.any]\nprovider = "openai"\n{lacks_key}{flows}', "utf-8")
    async with started(SERVE, "--config", str(file), "--port", "0", OPENAI_API_KEY=KEY) as process:
        line = (await asyncio.wait_for(out_of(process).readline(), 60)).decode()
    assert " serves text-completion (any of openai; failed, see the log: keyless of mistral), prompt (" in line
    assert re.search(r'; try: tg-invoke-llm -u \S+ -f first "be brief" ', line)


async def test_the_ready_line_of_a_file_without_a_model_asks_for_one(tmp_path: Path) -> None:
    """And does not lead to a command that fails: who adds a key to a file has no built-in model any more."""
    (tmp_path / "tg.toml").write_text("[gateway]\nport = 0\n", "utf-8")
    async with started(SERVE, "--config", str(tmp_path / "tg.toml")) as process:
        line = (await asyncio.wait_for(out_of(process).readline(), 60)).decode()
    assert line.endswith("; add a model: name one with --model, or bind one in a flow of the file\n")


async def test_the_command_lines_key_and_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    key, page = hashlib.sha256(b"right").hexdigest(), "https://page.example"
    order = ServeOptions(port=0, model="gated", provider="openai", origins=(page,), key=key)
    async with launch(order) as (_, url), ClientSession(url) as http:
        for token, status in (("wrong", 401), ("right", 200)):
            headers = {"Authorization": f"Bearer {token}", "Origin": page}
            async with http.get("v1/models", headers=headers) as response:
                assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (status, page)


def configured(folder: Path, text: str) -> Path:
    """A configuration with this in it."""
    file = folder / "tokengrid.toml"
    model = '[models.any]\nprovider = "openai"\n[flows.default]\ntext-completion = { model = "any" }\nprompt = {}\n'
    file.write_text(f"{text}\n{model}", "utf-8")
    return file


KEYLESS = ["--model", "m", "--provider", "openai", "-o", "key_variable="]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--only", "gateway"], 1, "memory:// reaches no other process: with --only, give --bus pulsar://HOST:6650"),
        (["--workers", "0"], 2, "0 is not in the range 1<=x<=256"),
        (["--workers", "2", "--only", "gateway"], 1, "each worker would be alone: with --workers, give --bus pulsar:"),
        (["--workers", "2", "--bus", "pulsar://localhost"], 1, "multiplies the gateway alone: add --only gateway"),
        (["--bus", "kafka://x"], 1, 'there is no bus "kafka"; known are memory, pulsar; write'),
        (["--model", "nope"], 1, 'there is no model "nope" (known: tinydemo)'),
        (["llama3.2:1b"], 1, "for instance of a model of Ollama: tg-serve llama3.2:1b --provider ollama"),
        (["--config", "nowhere.toml"], 1, "nowhere.toml is not there"),
        ([*KEYLESS, "--host", "0.0.0.0"], 1, "without any key"),
        (["--provider", "openai"], 2, "give its name with --model"),
        (["--model", "m", "--provider", "p", "-o", "x"], 2, "write NAME=VALUE"),
        (["--only", "agnet"], 2, "agnet"),
        (["--port", "70000"], 2, "70000"),
    ],
)
async def test_what_cannot_be_run(options: list[str], code: int, sentence: str) -> None:
    done = await ran(SERVE, "--log-level", "error", *options)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err
    if code == 1:
        assert done.err.startswith(f"{SERVE}: ")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
async def test_a_server_without_one_of_its_standard_descriptors_ends_as_usual(
    provider: GatedOpenAi, closed: str
) -> None:
    options = f"--port 0 --model gated --provider openai --base-url {provider.url} --log-level error"
    command = f"exec {SCRIPTS / SERVE} {options} {closed}"
    async with started("bash", "-c", command, OPENAI_API_KEY=KEY) as process:
        assert (await out_of(process).readline()).startswith(b"ready: ")
        process.terminate()
        assert (await ended(process)).code == 0


def open_full_disk() -> int:
    """A descriptor that takes nothing."""
    return os.open("/dev/full", os.O_WRONLY)


def open_left_pipe() -> int:
    """A descriptor whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(
    ("opened", "why"), [(open_full_disk, "No space left on device"), (open_left_pipe, "Broken pipe")]
)
async def test_a_server_whose_output_takes_nothing_goes_on_and_says_so(
    provider: GatedOpenAi, opened: Callable[[], int], why: str
) -> None:
    options = ("--port", "0", "--model", "gated", "--provider", "openai", "--base-url", provider.url)
    stdout = opened()
    async with started(SERVE, *options, "--log-level", "error", stdout=stdout, OPENAI_API_KEY=KEY) as process:
        os.close(stdout)
        assert process.stderr is not None
        said = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert said.startswith(f"the standard output cannot be written ({why}), but the server goes on; ready: http://")
        async with ClientSession(said.partition("ready: ")[2].split()[0]) as http, http.get("health") as answer:
            assert answer.status == 200
        process.terminate()
        done = await ended(process)
        assert (done.code, done.err) == (0, "")
