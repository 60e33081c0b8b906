"""The bedrock provider beyond the matrix: foreign frames, credentials, limits."""

import asyncio
import json
import os
import ssl
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec
import pytest
from aiohttp import web
from typing_extensions import override

from tests.fakes.bedrock_server import BedrockServer, event, frame, frame_of, seal
from tests.fakes.endless import pour
from tests.fakes.plan import Asked, Counts, Fault, Plan
from tests.fakes.silent_server import SilentServer
from tests.flow.usage_records import record_here
from tests.observed_calls import observe_calls
from tests.within import within
from tg_base.llm import LlmService
from tg_base.runtime import start_daemon_thread
from tg_bedrock.request import to_wire
from tg_bedrock.stream import StreamDecoder
from tg_flow.providers import open_provider
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    TgError,
    Tool,
    ToolCall,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import (
    BadRequest,
    IncompleteStream,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    Timeout,
    Unavailable,
)
from tg_schema.text_completion import Reasoning

REQUEST = TextCompletionRequest(prompt="say hello", streaming=True)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An environment with a key, and with nothing of this machine's."""
    nowhere = tmp_path_factory.mktemp("aws")
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", BedrockServer.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[LlmService]:
    table = {"endpoint_url": url, "region": "eu-west-1", "tries": 1, **options}
    async with aclosing(await open_provider("bedrock", "fake-model", table)) as service:
        yield service


async def responses(
    service: LlmService, request: TextCompletionRequest = REQUEST, into: list[TextCompletionResponse] | None = None
) -> list[TextCompletionResponse]:
    received = [] if into is None else into
    async with aclosing(service.on_request(request)) as stream:
        async for response in stream:
            received.append(response)
    return received


class Broken(BedrockServer):
    """Sends `raw` in place of an error."""

    raw = b""

    @override
    def error(self, plan: Plan) -> bytes:
        return self.raw


def exception(kind: str) -> bytes:
    return frame({":message-type": "exception", ":exception-type": kind}, {"message": "no"})


DEEP = frame_of({":message-type": "event", ":event-type": "messageStop"}, b"[" * 60_000)
HALF = frame_of(
    {":message-type": "event", ":event-type": "contentBlockDelta"},
    rb'{"delta": {"text": "\ud800"}, "contentBlockIndex": 1}',
)
GOOD = event("contentBlockDelta", {"delta": {"text": "x"}, "contentBlockIndex": 1})


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (exception("throttlingException"), RateLimited),
        (exception("validationException"), BadRequest),
        (exception("serviceUnavailableException"), Unavailable),
        (exception("internalServerException"), Unavailable),
        (exception("modelStreamErrorException"), Unavailable),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), ProtocolError),
        (GOOD[:9] + bytes([GOOD[9] ^ 1]) + GOOD[10:], ProtocolError),
        (bytes(range(256)), ProtocolError),
        (b"<html>" * 50, ProtocolError),
        (DEEP, ProtocolError),
        (seal(b"\x05ab", b"{}"), ProtocolError),
        (seal(b"\x01a\x07\x00", b"{}"), ProtocolError),
        (frame({":message-type": "event", ":event-type": "contentBlockDelta"}, {})[:-20], IncompleteStream),
        (event("messageStop", {"stopReason": "malformed_tool_use"}), ProtocolError),
        (event("contentBlockDelta", {"delta": {"text": 5}, "contentBlockIndex": 1}), ProtocolError),
        (HALF, ProtocolError),
        (event("contentBlockDelta", {"delta": [], "contentBlockIndex": 1}), ProtocolError),
        (event("contentBlockDelta", {"delta": {"text": "x" * 2**21}, "contentBlockIndex": 1}), ProtocolError),
        (event("metadata", {"usage": {"inputTokens": "a", "outputTokens": None}}), ProtocolError),
        (event("metadata", {"usage": 5}), ProtocolError),
    ],
)
async def test_what_goes_wrong_in_a_stream_is_one_typed_error_after_the_text(raw: bytes, kind: type[TgError]) -> None:
    async with Broken.running() as server, opened(server.url) as service:
        server.raw = raw
        server.play(Plan(fault=Fault.ERROR, after=1))
        received: list[TextCompletionResponse] = []
        with pytest.raises(TgError) as caught:
            await responses(service, into=received)
        assert type(caught.value) is kind
        assert "".join(record.response or "" for record in received) == "Hel"
        assert "no" not in caught.value.message.split()


class Lingering(BedrockServer):
    """Keeps the connection after the terminal marker, without the usage."""

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield from super().opening(plan, asked)
        yield self.piece("all")
        yield event("messageStop", {"stopReason": "end_turn"})


async def test_a_finished_answer_is_whole_without_its_usage() -> None:
    async with Lingering.running() as server, opened(server.url, usage_patience=0.05) as service:
        server.play(Plan(fault=Fault.STALL))
        last = (await responses(service))[-1]
        assert (last.finish_reason, last.in_token, last.error) == ("stop", None, None)
        await within(1, (await server.exchange(0)).left.wait())


async def test_a_list_of_models_that_does_not_come_is_left() -> None:
    async with SilentServer.running() as server, opened(server.url, clocks={"first_token": 0.2}) as service:
        with pytest.raises(Timeout):
            await service.models()
        await within(1, server.left.wait())


@pytest.mark.parametrize(("status", "kind"), [(503, Unavailable), (200, ProtocolError)])
async def test_what_the_sdk_reads_in_one_go_has_a_bound(status: int, kind: type[TgError]) -> None:
    async def endless(self: BedrockServer, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await pour(response, b" " * 65536)
        return response

    server_kind: type[BedrockServer] = type("Endless", (BedrockServer,), {"_handle": endless})
    async with server_kind.running() as server, opened(server.url) as service:
        with pytest.raises(TgError) as caught:
            await service.models()
        assert type(caught.value) is kind


class Endless(BedrockServer):
    """Counts how many pieces it could send."""

    sent = 0

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        while True:
            self.sent += 1
            yield self.piece("x" * 10_000)


async def test_a_slow_reader_holds_the_provider_back_and_may_leave() -> None:
    async with Endless.running() as server, opened(server.url) as service:
        async with aclosing(service.on_request(REQUEST)) as stream:
            await anext(stream)
            async with asyncio.timeout(20):
                before = -1
                while before != server.sent:  # until our buffers and those of the socket are full
                    before = server.sent
                    await asyncio.sleep(0.2)
        await within(1, (await server.exchange(0)).left.wait())


async def test_no_certificates_are_read_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    readers: set[threading.Thread] = set()
    async with BedrockServer.running() as server:
        with observe_calls(ssl.create_default_context, lambda _: readers.add(threading.current_thread())):
            async with opened(server.url) as service:
                assert (await responses(service))[-1].finish_reason == "stop"
    assert threading.current_thread() not in readers


@pytest.mark.parametrize(
    ("unset", "options", "kind", "sentence"),
    [
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), {}, ProviderAuth, "AWS_ACCESS_KEY_ID"),
        ((), {"region": None}, BadRequest, "AWS_REGION"),
        ((), {"profile": "nobody"}, ProviderAuth, "AWS_PROFILE"),
        ((), {"endpoint_url": "not a URL"}, BadRequest, "endpoint_url"),
    ],
)
async def test_what_is_missing_at_the_start_is_named(
    monkeypatch: pytest.MonkeyPatch,
    unset: tuple[str, ...],
    options: dict[str, Any],
    kind: type[TgError],
    sentence: str,
) -> None:
    for name in unset:
        monkeypatch.delenv(name)
    with pytest.raises(kind, match=sentence):
        await open_provider("bedrock", "m", {"endpoint_url": "http://127.0.0.1:9", "region": "eu-west-1", **options})


async def test_a_key_of_bedrocks_own_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "own-key")
    async with BedrockServer.running() as server, opened(server.url) as service:
        with pytest.raises(BadRequest, match="https://"):  # boto3 shows it to nobody without TLS
            await responses(service)
        assert server.exchanges == []


@pytest.mark.parametrize(
    "message",
    [
        Message("user", (ImagePart(url="https://pictures.invalid/a.png"),)),
        Message("user", (ImagePart(data="not base64!"),)),
        Message("user", (ImagePart(media_type="image/tiff", data="AAAA"),)),
        Message("assistant", tool_calls=(ToolCall("1", "clock", "[1]"),)),
        Message("assistant", tool_calls=(ToolCall("1", "a name with blanks", "{}"),)),
    ],
)
async def test_what_bedrock_cannot_take_is_refused(message: Message) -> None:
    async with BedrockServer.running() as server, opened(server.url) as service:
        with pytest.raises(BadRequest):
            await responses(service, TextCompletionRequest(messages=(message,), streaming=True))


async def test_cache_marks_become_cache_points_and_written_tokens_are_told() -> None:
    marked = TextCompletionRequest(
        messages=(
            Message("system", (TextPart("be brief", cache="5m"), TextPart("and kind"))),
            Message("user", (TextPart("a", cache="1h"), ImagePart(data="AAAA", cache="5m"))),
            Message("assistant", tool_calls=(ToolCall("1", "clock", cache="5m"),)),
            Message("tool", "noon", tool_call_id="1", cache="5m"),
        ),
        tools=(Tool("clock", strict=True, cache="5m"),),
    )
    wire = to_wire(marked, "m", Sampling(), {})
    short, long = {"cachePoint": {"type": "default"}}, {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert wire["system"] == [{"text": "be brief"}, short, {"text": "and kind"}]
    blocks = [[next(iter(block)) for block in message["content"]] for message in wire["messages"]]
    assert blocks == [
        ["text", "cachePoint", "image", "cachePoint"],
        ["toolUse", "cachePoint"],
        ["toolResult", "cachePoint"],
    ]
    assert wire["messages"][0]["content"][1] == long
    assert wire["toolConfig"]["tools"][1] == short
    async with BedrockServer.running() as server, opened(server.url) as service:
        (answer,) = await responses(service, marked)
    assert answer.cache_write_token == Counts().written


@pytest.mark.parametrize(
    ("reasoning", "effort", "by_thinking"),
    [
        (Reasoning("minimal"), "minimal", ("low", {"type": "adaptive"})),
        (Reasoning("none"), "none", (None, {"type": "disabled"})),
        (Reasoning(budget=0), "none", (None, {"type": "disabled"})),
        (Reasoning("high", 2048), "high", ("high", {"type": "enabled", "budget_tokens": 2048})),
        (Reasoning(budget=2048), "low", (None, {"type": "enabled", "budget_tokens": 2048})),
    ],
)
async def test_reasoning_of_a_request(reasoning: Reasoning, effort: str, by_thinking: tuple[Any, ...]) -> None:
    request = TextCompletionRequest(prompt="p", reasoning=reasoning)
    plain: Any = to_wire(request, "m", Sampling(), {"top_k": 5})
    assert (plain["outputConfig"], plain["additionalModelRequestFields"]) == ({"effort": effort}, {"top_k": 5})
    wire: Any = to_wire(request, "m", Sampling(), {}, by_thinking=True)
    told = wire.get("outputConfig", {}).get("effort"), wire["additionalModelRequestFields"]["thinking"]
    assert told == by_thinking
    async with BedrockServer.running() as server, opened(server.url, reasoning_by="thinking") as service:
        assert (await responses(service, msgspec.structs.replace(request, streaming=True)))[-1].finish_reason == "stop"


async def test_encrypted_thinking_in_pieces_is_one_signature() -> None:
    decoder = StreamDecoder()
    events: list[Any] = [
        {"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": piece}}, "contentBlockIndex": 0}}
        for piece in (b"a", b"b")
    ]
    read = [
        decoder.chunk(msgspec.json.encode(each)) for each in [*events, {"contentBlockStop": {"contentBlockIndex": 0}}]
    ]
    assert [chunk and chunk.signature for chunk in read] == [None, None, "bedrock-redacted:YWI="]
    with pytest.raises(BadRequest, match="not base64"):
        to_wire(
            TextCompletionRequest(messages=(Message("assistant", (ReasoningPart("", "bedrock-redacted:!"),)),)),
            "m",
            Sampling(),
            {},
        )


async def test_fields_of_one_model_reach_it() -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
    async with BedrockServer.running() as server, opened(server.url, model_fields=fields) as service:
        assert (await responses(service))[-1].finish_reason == "stop"


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
