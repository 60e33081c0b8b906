"""Who may come in: tokens on every door, wrong ones slowed down, pages of other origins, addresses without keys."""

import asyncio
import hashlib
import json
import socket
from typing import Any

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError
from msgspec import structs
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from yarl import URL

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import PATH, answer, ask, masked, upgrade
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.access import Authenticator, Limits
from tg_gateway.access.origins import Origins, is_loopback
from tg_gateway.access.throttle import Throttle
from tg_schema.errors import BadRequest, RateLimited, Unauthorized

TOKEN = "tg_0123456789-canary"
KEYS = (
    ApiKey(name="somebody else", sha256=hashlib.sha256(b"other").hexdigest()),
    ApiKey(name="tester", sha256=hashlib.sha256(TOKEN.encode()).hexdigest(), admin=True),
)
LOCKED = GatewayConfig(port=0, keys=KEYS, drain=0.05)
COMPLETION = "api/v1/text-completion"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
WRONG = {"Authorization": "Bearer wrong"}
OTHER = {"Authorization": "Bearer other"}
PING, PONG = masked(b"x", 0x89), masked(b"x", 0x8A)


@pytest.mark.parametrize(
    ("method", "path", "open_to_all"),
    [
        ("POST", COMPLETION, False),
        ("POST", "api/v1/prompt", False),
        ("POST", "api/v1/flow/default/service/prompt", False),
        ("POST", "api/v1/nope", False),
        ("GET", COMPLETION, False),
        ("GET", "api/v1/models", False),
        ("GET", "metrics", False),
        ("GET", "nope", False),
        ("GET", "health", True),
        ("GET", "ready", True),
    ],
)
async def test_the_same_check_on_every_path(method: str, path: str, open_to_all: bool) -> None:
    async with open_gateway(LOCKED) as it:
        for headers in ({}, WRONG, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}):
            async with it.http.request(method, path, headers=headers, data=b"{}") as response:
                assert (response.status == 401) is not open_to_all
                if not open_to_all:
                    assert response.headers["WWW-Authenticate"] == "Bearer"
                    assert (await response.json())["error"]["type"] == "unauthorized"
        async with it.http.request(method, path, headers=RIGHT, data=b"{}") as response:
            assert response.status != 401


async def test_the_right_token_streams() -> None:
    async with open_gateway(LOCKED) as it:
        body = {"prompt": "1", "streaming": True}
        async with it.http.post(COMPLETION, headers={"authorization": f"bearer {TOKEN}"}, json=body) as response:
            assert response.status == 200
            assert b'"end_of_stream":true' in await response.read()


async def test_a_large_message_without_a_key_is_not_read() -> None:
    async with open_gateway(LOCKED) as it, it.http.ws_connect(PATH) as socket:
        refused = await answer(socket, '{"id":"a","request":no JSON' + "x" * 100_000)
        assert (refused["id"], refused["error"]["type"]) == ("a", "auth-required")


async def test_the_socket_asks_for_the_auth_frame() -> None:
    async with open_gateway(LOCKED) as it, it.http.ws_connect(PATH) as socket:
        refused = {"id": "a", "error": {"message": "auth failure", "type": "auth-required"}, "complete": True}
        assert await answer(socket, ask("a", 1)) == refused
        for token in ("", "wrong", None):
            failed = await answer(socket, {"type": "auth", "token": token})
            assert (failed["type"], set(failed)) == ("auth-failed", {"type", "error"})
            assert await answer(socket, ask("a", 1)) == refused
        assert (await answer(socket, {"type": "auth", "token": TOKEN}))["type"] == "auth-ok"
        assert (await answer(socket, ask("a", 1)))["complete"] is True
        assert (await answer(socket, {"type": "auth", "token": "wrong"}))["type"] == "auth-failed"
        assert await answer(socket, ask("a", 1)) == refused


@pytest.mark.parametrize("path", ["metrics", "%6Detrics", "instances", "instances?format=json"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_all_keys_ask_is_shown_to_an_admin_alone(method: str, path: str) -> None:
    url = URL("/" + path, encoded=True)
    async with open_gateway(LOCKED) as it:
        async with it.http.request(method, url, headers=OTHER) as response:
            assert response.status == 403
            assert method == "HEAD" or "admin = true in its table [[gateway.keys]]" in await response.text()
        async with it.http.request(method, url, headers=RIGHT) as response:
            assert response.status == 200
        it.gateway.prepare(structs.replace(LOCKED, keys=(KEYS[0], structs.replace(KEYS[1], admin=False))))()
        async with it.http.request(method, url, headers=RIGHT) as response:
            assert response.status == 403


class Adaptable(CountingLlm):
    """A model that loads adapters, or would."""

    features = frozenset({"load_adapter"})


TURNS = 2000 * [{"role": "user", "content": "x" * 50}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/load_lora_adapter", {"lora_name": "a", "lora_path": "a.gguf"}),
        ("v1/unload_lora_adapter", {"lora_name": "a"}),
        (COMPLETION, {"operation": "load-adapter", "adapter": "a", "adapter_path": "a.gguf"}),
        # So many turns that another process reads it.
        (
            COMPLETION,
            {"operation": "load-adapter", "adapter": "a", "adapter_path": "a.gguf", "messages": TURNS},
        ),
        ("api/v1/flow/default/service/text-completion", {"operation": "unload-adapter", "adapter": "a"}),
        (PATH, {"operation": "load-adapter", "adapter": "a", "adapter_path": "a.gguf"}),
    ],
)
async def test_adapters_are_loaded_and_unloaded_by_an_admin_alone(path: str, body: dict[str, Any]) -> None:
    told = []
    async with open_gateway(LOCKED, llm=Adaptable()) as it:
        for headers in (OTHER, RIGHT):
            if path == PATH:
                async with it.http.ws_connect(PATH, headers=headers) as socket:
                    asked = {"id": 1, "service": "text-completion", "request": body}
                    told.append(json.dumps(await answer(socket, asked)))
            else:
                async with it.http.post(path, headers=headers, json=body) as response:
                    assert (response.status == 403) is (headers == OTHER)
                    told.append(await response.text())
    assert ["admin = true" in each for each in told] == [True, False]


async def test_the_socket_takes_the_header_too() -> None:
    async with open_gateway(LOCKED) as it:
        async with it.http.ws_connect(PATH, headers=RIGHT) as socket:
            assert (await answer(socket, ask("a", 1)))["complete"] is True
        with pytest.raises(WSServerHandshakeError) as refused:
            await it.http.ws_connect(PATH, headers=WRONG)
        assert refused.value.status == 401


async def test_a_socket_without_a_token_is_closed_in_time() -> None:
    async with open_gateway(structs.replace(LOCKED, auth_timeout=0.05)) as it, it.http.ws_connect(PATH) as socket:
        await socket.receive(timeout=5)
        assert socket.close_code == 1008


@pytest.mark.parametrize("frame", [PING, PONG, masked(b"{}")])
async def test_nothing_but_a_token_lengthens_the_life_of_a_socket(frame: bytes) -> None:
    config = structs.replace(LOCKED, auth_timeout=0.1)
    async with open_gateway(config) as it, raw_connection(it.address) as raw:
        await upgrade(raw)

        async def repeat() -> None:
            while True:
                raw.send(frame)
                await asyncio.sleep(0.01)

        repeating = asyncio.create_task(repeat())
        await raw.until(b"no auth frame came")
        repeating.cancel()


async def test_a_client_that_reads_no_pongs_is_cut_off_as_well() -> None:
    """Though whoever has shown a token may take longer to read."""
    config, patient = structs.replace(LOCKED, auth_timeout=0.2), Limits(write=600)
    async with asyncio.timeout(20), open_gateway(config, limits=patient) as it:
        for site in it.gateway._runner.sites:
            for listening in site._server.sockets:  # type: ignore[union-attr]
                # A connection inherits how much the system keeps of what is written.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        async with raw_connection(it.address) as raw:
            await upgrade(raw)
            # It stops reading at its own limit, and what the gateway has left to write stays there.
            raw.send(5_000 * masked(b"x" * 120, 0x89))
            while not raw.writer.transport.is_closing():
                # All of it may be in the system's buffers: only a further write tells that nobody is there.
                raw.send(PING)
                await asyncio.sleep(0.01)


async def test_pings_of_a_socket_with_a_token_are_answered() -> None:
    async with open_gateway(LOCKED) as it, it.http.ws_connect(PATH, headers=RIGHT, autoping=False) as socket:
        await socket.ping(b"now")
        assert await socket.receive(timeout=5) == (WSMsgType.PONG, b"now", "")
        assert (await answer(socket, ask("a", 1)))["complete"] is True


async def test_wrong_tokens_are_slowed_down_but_not_the_right_one() -> None:
    async with open_gateway(LOCKED, limits=Limits(failures=3, forget=1000)) as it:
        await status(it, RIGHT)
        known = REGISTRY.get_sample_value("tg_gateway_auth_failures_total") or 0.0
        assert [await status(it, WRONG) for _ in range(4)] == [401, 401, 401, 429]
        # The alert must hear of guesses that are not looked at any more.
        assert REGISTRY.get_sample_value("tg_gateway_auth_failures_total") == known + 4
        async with it.http.post(COMPLETION, headers={"Authorization": "Bearer other"}, json={}) as response:
            assert response.status == 429
            assert 990 < int(response.headers["Retry-After"]) <= 1000
        assert await status(it, RIGHT) == 200
        async with it.http.ws_connect(PATH) as socket:
            assert (await answer(socket, {"type": "auth", "token": "wrong"}))["type"] == "auth-failed"


async def status(it: Opened, headers: dict[str, str]) -> int:
    async with it.http.post(COMPLETION, headers=headers, json={"prompt": "1"}) as response:
        return response.status


def test_the_throttle_forgets_and_stays_small() -> None:
    now = [0.0]
    throttle = Throttle(2, 10, lambda: now[0])
    for _ in range(2):
        throttle.note_failure("1.2.3.4")
    assert (throttle.wait("1.2.3.4", "x"), throttle.wait("1.2.3.5", "x")) == (10, 0)
    now[0] = 4.0
    assert throttle.wait("1.2.3.4", "x") == 6
    now[0] = 10.0
    assert throttle.wait("1.2.3.4", "x") == 0
    for number in range(3):
        throttle.note_failure(f"2001:db8:0:1::{number}")
    assert throttle.wait("2001:db8:0:1:ffff::", "x") == 10
    for number in range(20_000):
        throttle.note_failure(f"10.0.{number // 256}.{number % 256}")
    assert throttle.wait("2001:db8:0:1::", "x") == 0


@pytest.mark.parametrize(
    ("config", "required"),
    [
        (GatewayConfig(), False),
        (GatewayConfig(host="::1"), False),
        (GatewayConfig(host="localhost"), False),
        (GatewayConfig(keys=KEYS), True),
        (GatewayConfig(keys=KEYS, auth="off"), False),
        (GatewayConfig(host="0.0.0.0", keys=KEYS), True),
        (GatewayConfig(host="0.0.0.0", auth="off"), False),
    ],
)
def test_when_a_token_is_asked_for(config: GatewayConfig, required: bool) -> None:
    assert Authenticator(config, Limits(), lambda: 0.0).required is required


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (GatewayConfig(host="0.0.0.0"), "without any key"),
        (GatewayConfig(host="::"), "without any key"),
        (GatewayConfig(host=""), "without any key"),
        (GatewayConfig(host="gateway.example"), "without any key"),
        (GatewayConfig(auth="on"), 'needs a key; add .* or write auth = "auto"'),
        (GatewayConfig(keys=(ApiKey(name="x", sha256="plain token"),)), "64 hexadecimal digits"),
    ],
)
def test_what_does_not_start(config: GatewayConfig, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        Authenticator(config, Limits(), lambda: 0.0)


def test_any_token_is_only_right_or_wrong() -> None:
    authenticator = Authenticator(LOCKED, Limits(failures=2), lambda: 0.0)
    assert authenticator.check(TOKEN, "a").name == "tester"
    with pytest.raises(Unauthorized):
        authenticator.check("\udcff\x00é", "a")
    with pytest.raises(Unauthorized):
        authenticator.check("", "a")
    with pytest.raises(Unauthorized):
        authenticator.check("x" * 100_000, "a")
    with pytest.raises(RateLimited):
        authenticator.check("x", "a")


@pytest.mark.parametrize(
    ("origin", "host", "open_door", "locked"),
    [
        (None, "gateway:8888", False, True),
        (None, "evil.example", False, True),
        (None, "localhost.evil.example:8888", False, True),
        (None, "", False, True),
        (None, "[::1", False, True),
        (None, "localhost:8888", True, True),
        (None, "LocalHost", True, True),
        (None, "127.0.0.1:8888", True, True),
        (None, "[::1]:8888", True, True),
        (None, "10.1.2.3:8888", True, True),
        (None, "[fd00::1]:8888", True, True),
        (None, None, True, True),
        ("http://localhost:8888", None, False, False),
        ("http://10.1.2.3:8888", "10.1.2.3:8888", False, True),
        ("http://localhost:8888", "localhost:8888", True, True),
        ("http://127.0.0.1:8888", "127.0.0.1:8888", True, True),
        ("http://evil.example", "localhost:8888", False, False),
        ("http://localhost:3000", "localhost:8888", False, False),
        ("null", "localhost:8888", False, False),
        ("http://evil.example:8888", "evil.example:8888", False, True),
        ("http://[::1", "localhost", False, False),
        ("", "localhost", False, False),
    ],
)
def test_origins(origin: str | None, host: str | None, open_door: bool, locked: bool) -> None:
    assert Origins(GatewayConfig()).admits(origin, host, keyed=False) is open_door
    assert Origins(LOCKED).admits(origin, host, keyed=True) is locked


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "LOCALHOST")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example")] == [False] * 5


async def test_no_secret_is_told() -> None:
    """Neither tokens nor prompts nor answers stand in a log line, a metric or an error."""
    told: list[Any] = []
    with capture_logs() as logs:
        async with open_gateway(LOCKED) as it, it.http.ws_connect(PATH) as socket:
            prompt = "canary-prompt"
            for headers in (RIGHT, {"Authorization": f"Bearer {TOKEN}x"}):
                async with it.http.post(COMPLETION, headers=headers, json={"prompt": prompt}) as response:
                    told.append(await response.text())
            told.append(await answer(socket, {"type": "auth", "token": TOKEN + "x"}))
            told.append(await answer(socket, {"type": "auth", "token": TOKEN}))
            told.append(await answer(socket, ask("a", prompt)))
            async with it.http.get("metrics", headers=RIGHT) as response:
                told.append(await response.text())
    assert any(line.get("key") == "tester" for line in logs)
    assert "canary" not in json.dumps([told, logs], default=str)
