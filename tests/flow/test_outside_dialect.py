"""A protocol from outside, as one file beside the gateway: its streams, bodies, refusals and sockets are its own."""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes import parley
from tests.fakes.byte_llm import ByteLlm
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.flow.open_gateway import MOUNTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.installed_package import install_package
from tg_base.config import ApiKey, GatewayConfig
from tg_base.telemetry import trace
from tg_gateway.dialects import Answer, Ask, Call, Mount
from tg_gateway.dialects.openai.tokens import TOKENS
from tg_gateway.keyed_dialect import KeyedDialect
from tg_schema import TgError
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-dialect.md"
BOTH = (*MOUNTS, *parley.MOUNTS)
SERVED = """
[gateway]
port = 0

[gateway.parley]
longest = 3

[models.counting]
provider = "tests.fakes.counting_llm:CountingLlm"

[flows.default]
text-completion = { model = "counting" }
"""
NO_PATH = "no such path: check the base URL; GET /openapi.json lists all paths"
TALKS, VOICES, LINE = "/parley/talks", "/parley/voices", "/parley/line"
ALIASES = {"mate": "counting", "gone": "nobody"}
OPEN = GatewayConfig(port=0, drain=0.05, aliases=ALIASES, body_limit=100, large_body_limit=100)
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=1)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


@asynccontextmanager
async def opened(config: GatewayConfig = OPEN, llm: CountingLlm | None = None) -> AsyncIterator[Opened]:
    async with open_gateway(config, llm=llm, mounts=BOTH) as it:
        yield it


async def ask(it: Opened, body: object, method: str = "POST", path: str = TALKS, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.request(method, path, data=data, headers=headers) as response:
        assert response.content_type == "application/json"
        return response.status, json.loads(await response.read())


def test_the_page_shows_this_very_file() -> None:
    (shown,) = re.findall(r"```python\n(\"\"\"Parley.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown == Path(parley.__file__).read_text("utf-8")


async def test_the_server_serves_it_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page's package does, from a module that it only names."""
    file = tmp_path / "tg.toml"
    file.write_text(SERVED)
    module = "tests.fakes.parley"
    points = f"[tokengrid.doors]\nparley = {module}:MOUNTS\n[tokengrid.door_tables]\nparley = {module}:ParleyConfig\n"
    install_package(tmp_path, monkeypatch, "parley-door", points)
    async with launch(ServeOptions(file=file)) as (_, url), ClientSession(url) as http:
        async with http.post(TALKS, json={"say": "2"}) as response:
            assert (response.status, (await response.json())["speech"]) == (200, "0 1 ")
        async with http.post(TALKS, json={"say": "0002"}) as response:
            assert (response.status, (await response.json())["fault"]) == (400, "say at most 3 characters")
        async with http.get("/api/v1/models") as response:
            assert response.status == 200


async def test_two_protocols_on_one_path_are_told_apart_by_a_key_of_the_body() -> None:
    either = KeyedDialect({"say": (parley.PARLEY, "talk")}, (TOKENS, "tokenize"))
    mount = Mount("POST", "/either", either, "either")
    async with open_gateway(OPEN, mounts=(*MOUNTS, mount), llm=ByteLlm()) as it:
        assert (await ask(it, {"say": "2"}, path="/either"))[1]["speech"] == "2222"
        assert (await ask(it, {"say": ""}, path="/either"))[1] == {"fault": "say something", "code": 400}
        assert (await ask(it, {"prompt": "2"}, path="/either"))[1]["tokens"] == [1, 50]
        for body in ({"prompt": ""}, {}, b"", b"{", b"[]"):
            status, told = await ask(it, body, path="/either")
            assert (status, "message" in told["error"]) == (400, True)


async def test_a_stream_has_names_numbers_a_total_and_a_last_word() -> None:
    async with opened() as it:
        body = {"say": "2", "live": True}
        async with it.http.post(TALKS, json=body, headers={"X-Request-Id": "r"}) as response:
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["X-Accel-Buffering"] == "no"
            text = await response.read()
    events = text.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    assert events[-3] == b'event: total\nid: %d\ndata: {"talk":"talk-r","heard":7,"said":2}' % (len(events) - 2)
    words = [re.fullmatch(rb'event: word\nid: (\d+)\ndata: \{"talk":"talk-r","word":"(.*)"\}', one) for one in events]
    assert b"".join(word[2] for word in words if word) == b"0 1 "
    assert [int(word[1]) for word in words if word] == list(range(1, len(events) - 2))


async def test_a_whole_answer() -> None:
    async with opened() as it:
        status, answer = await ask(it, {"say": "2"}, **{"X-Request-Id": "r"})
    assert (status, answer) == (200, {"talk": "talk-r", "heard": 7, "said": 2, "speech": "0 1 "})


@pytest.mark.parametrize("voice", [None, "counting", "mate"])
async def test_a_model_is_found_by_every_name_of_it(voice: str | None) -> None:
    async with opened() as it:
        assert (await ask(it, {"say": "1", "voice": voice}))[0] == 200
        assert it.llm.requests[0].model == "counting"


async def test_what_can_be_asked_is_listed_without_asking_anybody() -> None:
    async with opened() as it:
        await ask(it, {"say": "0"})
        assert await ask(it, b"", "GET", VOICES) == (200, ["counting", "mate"])
        assert len(it.llm.requests) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", TALKS, b"{", 400, "not valid JSON"),
        ("POST", TALKS, {}, 400, "say something"),
        ("POST", TALKS, {"say": "1", "voice": "gone"}, 404, "there is no model 'gone'; there are: counting, mate"),
        ("POST", TALKS, {"say": "1", "voice": "mate:soft"}, 400, "no accents"),
        ("POST", TALKS, {"say": "1" * 200}, 413, "at most 100 bytes"),
        ("PUT", TALKS, {}, 405, "the method PUT"),
        ("POST", LINE, {}, 405, "the method POST"),
        ("GET", LINE, {}, 400, "WebSocket"),
        ("GET", "/parley", {}, 404, "no such path"),
        ("POST", "/parley/talks/7", {}, 404, "no such path"),
    ],
)
async def test_refusals_have_its_shape(method: str, path: str, body: object, status: int, says: str) -> None:
    async with opened() as it:
        got, answer = await ask(it, body, method, path)
        assert (got, set(answer), answer["code"]) == (status, {"fault", "code"}, status)
        assert says in answer["fault"]


async def test_its_neighbours_are_refused_in_theirs() -> None:
    async with opened() as it:
        for path in ("/api/v1/nope", "/nope"):
            assert (await ask(it, {}, path=path))[1] == {"error": {"type": "not-found", "message": NO_PATH}}


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key"])
async def test_a_key_by_any_header_and_its_limit(header: str) -> None:
    def shown(key: str) -> dict[str, str]:
        return {header: f"Bearer {key}" if header == "Authorization" else key}

    async with opened(LOCKED) as it:
        for headers in ({}, shown("wrong")):
            async with it.http.post(TALKS, json={"say": "1"}, headers=headers) as response:
                assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
                assert (await response.json())["code"] == 401
        assert (await ask(it, {"say": "1"}, **shown("right")))[0] == 200
        async with it.http.post(TALKS, json={"say": "1"}, headers=shown("right")) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "60")
            assert (await response.json())["code"] == 429


class _LosesItsFault(parley.LiveWriter):
    @override
    def fail(self, error: TgError) -> bytes:
        raise ZeroDivisionError


class _Defective(parley.Parley):
    @override
    def parse(self, call: Call) -> Ask | Answer:
        asked = super().parse(call)
        assert isinstance(asked, Ask)
        return Ask(asked.route, asked.request, _LosesItsFault("talk"), streaming=True)


async def test_a_defect_in_mid_stream_breaks_the_body() -> None:
    mount = Mount("POST", TALKS, _Defective(), "talk")
    with capture_logs() as logs:
        async with open_gateway(OPEN, llm=FailingLlm(), mounts=(mount,)) as it, raw_connection(it.address) as raw:
            raw.post(TALKS, b'{"say":"1","live":true}')
            answer = await raw.rest()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"event: word" in answer
    assert not answer.endswith(b"\r\n0\r\n\r\n")
    (defect,) = (entry for entry in logs if entry["event"] == "gateway.defect")
    assert defect["exc_info"] is True
    (line,) = (entry for entry in logs if entry["event"] == "gateway.request")
    assert (line["status"], line["outcome"]) == (200, "internal")


class _FailsToWrite(parley.LiveWriter):
    @override
    def end(self) -> bytes:
        raise ZeroDivisionError


class _EndsInDefect(parley.Parley):
    @override
    def parse(self, call: Call) -> Ask | Answer:
        asked = super().parse(call)
        assert isinstance(asked, Ask)
        return Ask(asked.route, asked.request, _FailsToWrite("talk"), streaming=asked.streaming)


@pytest.mark.parametrize("live", [False, True])
async def test_the_log_has_a_defect_of_a_writer_under_the_requests_id(*, live: bool) -> None:
    mount = Mount("POST", TALKS, _EndsInDefect(), "talk")
    with capture_logs(processors=[trace.add_ids]) as logs:
        async with open_gateway(OPEN, mounts=(mount,)) as it, raw_connection(it.address) as raw:
            raw.post(TALKS, json.dumps({"say": "1", "live": live}).encode())
            await raw.rest()
    (defect,) = (entry for entry in logs if entry["event"] == "gateway.defect")
    (line,) = (entry for entry in logs if entry["event"] == "gateway.request")
    assert (line["outcome"], defect["request"]) == ("internal", line["request"])


async def test_talks_side_by_side_on_its_socket() -> None:
    async with opened() as it, it.http.ws_connect(LINE) as socket:
        await socket.send_str("SAY a 2")
        await socket.send_str("SHOUT b 1")
        await socket.send_str("SAY c 1")
        heard: dict[str, str] = {"a": "", "b": "", "c": ""}
        over: set[str] = set()
        while len(over) < len(heard):
            verb, name, said = (await socket.receive_str(timeout=5)).split(" ", 2)
            heard[name] += said
            over |= {name} if verb in {"OVER", "FAULT"} else set()
        assert (heard["a"], heard["c"]) == ("0 1 ", "0 ")
        assert "SAY NAME TEXT" in heard["b"]


async def test_its_socket_cancels() -> None:
    async with opened() as it, it.http.ws_connect(LINE) as socket:
        await socket.send_str("SAY a 1000000")
        await it.llm.started.wait()
        await socket.send_str("HUSH a")
        last = ""
        while not last.startswith("FAULT"):
            last = await socket.receive_str(timeout=5)
        assert "cancelled" in last


class _Other(parley.Parley):
    """Parley's elder sister, for requests that ask for her."""

    @override
    def parse(self, call: Call) -> Answer:
        return Answer(b'"elder"')

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(b'"elder refuses"', status)


async def test_a_header_chooses_between_two_protocols_on_one_path() -> None:
    other = Mount("GET", VOICES, _Other(), "voices", header="parley-version")
    async with open_gateway(LOCKED, mounts=(*MOUNTS, other, *parley.MOUNTS)) as it:
        assert (await ask(it, b"", "GET", VOICES, **{"parley-version": "1"})) == (401, "elder refuses")
        assert (await ask(it, b"", "GET", VOICES, **{"parley-version": "1", "api-key": "right"})) == (200, "elder")
        status, answer = await ask(it, b"", "GET", VOICES)
        assert (status, answer["code"]) == (401, 401)
