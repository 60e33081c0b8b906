"""Keys that are added, revoked or limited while the gateway runs: what it refuses, and from when on."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession
from msgspec import structs
from structlog.testing import capture_logs

from tests.fakes.gated_openai import GatedOpenAi
from tests.flow.narrow_gateway import SOCKET, digest_of, token_of
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import answer, ask, frame
from tests.until import until
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.access import Authenticator, Limits
from tg_schema.errors import BadRequest, RateLimited, Unauthorized
from tg_serve import launcher
from tg_serve.options import ServeOptions

COMPLETION = "/api/v1/text-completion"
AUTH_REQUIRED = {"error": {"message": "auth failure", "type": "auth-required"}, "complete": True}


def keys(*names: str) -> GatewayConfig:
    """A gateway with these keys."""
    return GatewayConfig(port=0, drain=0.05, keys=tuple(ApiKey(name=name, sha256=digest_of(name)) for name in names))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(name)}"}


async def status(it: Opened, key: str, *, streaming: bool = False) -> int:
    """Of one request with that key's token, read to its end."""
    async with it.http.post(COMPLETION, headers=bearer(key), json={"prompt": "1", "streaming": streaming}) as response:
        await response.read()
        return response.status


async def handshake(it: Opened, key: str) -> int:
    async with it.http.get(SOCKET, headers=bearer(key)) as response:
        return response.status


@pytest.mark.parametrize("streaming", [False, True])
async def test_added_keys_come_in_and_revoked_ones_do_not(streaming: bool) -> None:
    async with open_gateway(keys("old", "stays")) as it:
        assert await status(it, "old", streaming=streaming) == 200
        with capture_logs() as logs:
            it.gateway.prepare(keys("new", "stays"))()
        assert logs == [{"event": "gateway.keys", "log_level": "info", "added": ["new"], "revoked": ["old"]}]
        names = ("old", "stays", "new")
        assert [await status(it, name, streaming=streaming) for name in names] == [401, 200, 200]
        assert [await handshake(it, name) for name in names] == [401, 400, 400]


async def test_a_stream_of_a_revoked_key_ends_as_it_would_have() -> None:
    async with open_gateway(keys("old")) as it:
        it.llm.step = asyncio.Semaphore(1)
        body = {"prompt": "2", "streaming": True}
        async with it.http.post(COMPLETION, headers=bearer("old"), json=body) as response:
            await response.content.readuntil(b"\n\n")
            it.gateway.prepare(keys("new"))()
            assert await status(it, "old") == 401
            it.llm.step.release()
            assert b'"end_of_stream":true' in await response.content.read()


async def test_an_open_socket_of_a_revoked_key_starts_nothing_more() -> None:
    async with open_gateway(keys("old")) as it, it.http.ws_connect(SOCKET, headers=bearer("old")) as socket:
        it.llm.step = asyncio.Semaphore(0)
        for name in ("finishes", "stops"):
            await socket.send_json(ask(name, 1))
        await until(lambda: len(it.llm.requests) == 2)
        it.gateway.prepare(keys("new"))()
        assert await answer(socket, ask("later", 1)) == {"id": "later", **AUTH_REQUIRED}
        assert await answer(socket, {"id": "unknown", "cancel": True}) == {"id": "unknown", **AUTH_REQUIRED}
        stopped = await answer(socket, {"id": "stops", "cancel": True})
        assert (stopped["id"], stopped["error"]["type"]) == ("stops", "cancelled")
        it.llm.step.release()
        finished = await frame(socket)
        assert (finished["id"], finished["complete"], finished["response"]["response"]) == ("finishes", True, "0 ")
        assert (await answer(socket, {"type": "auth", "token": token_of("old")}))["type"] == "auth-failed"
        assert (await answer(socket, {"type": "auth", "token": token_of("new")}))["type"] == "auth-ok"
        it.llm.step = None
        assert (await answer(socket, ask("again", 1)))["complete"] is True
        assert len(it.llm.requests) == 3


async def test_a_socket_whose_key_is_revoked_is_closed_in_time() -> None:
    config = structs.replace(keys("old"), auth_timeout=0.05)
    async with open_gateway(config) as it, it.http.ws_connect(SOCKET, headers=bearer("old")) as socket:
        it.gateway.prepare(keys("new"))()
        assert await answer(socket, ask("later", 1)) == {"id": "later", **AUTH_REQUIRED}
        await socket.receive(timeout=5)
        assert socket.close_code == 1008


async def test_a_key_that_is_revoked_while_its_body_comes_is_refused() -> None:
    async with open_gateway(keys("old")) as it, raw_connection(it.address) as raw:
        body = b'{"prompt":"1"}'
        head = f"POST {COMPLETION} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
        raw.send(f"{head}Authorization: Bearer {token_of('old')}\r\n\r\n".encode())
        await raw.until(b"100 Continue\r\n\r\n")
        it.gateway.prepare(keys("new"))()
        raw.send(body)
        assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        assert it.llm.requests == []


async def test_a_second_token_of_one_name_outlives_the_first() -> None:
    first, second = (ApiKey(name="alice", sha256=digest_of(name)) for name in ("old", "new"))
    config = structs.replace(keys(), keys=(first, second))
    async with (
        open_gateway(config) as it,
        it.http.ws_connect(SOCKET, headers=bearer("old")) as old,
        it.http.ws_connect(SOCKET, headers=bearer("new")) as new,
    ):
        it.gateway.prepare(structs.replace(config, keys=(second,)))()
        assert await answer(old, ask("a", 1)) == {"id": "a", **AUTH_REQUIRED}
        assert (await answer(new, ask("a", 1)))["complete"] is True


async def test_the_first_key_closes_an_open_gateway_and_the_last_one_does_not_open_it() -> None:
    async with open_gateway(keys()) as it, it.http.ws_connect(SOCKET) as socket:
        assert await status(it, "nobody") == 200
        it.gateway.prepare(structs.replace(keys("first"), max_unauthenticated=1))()
        assert [await status(it, name) for name in ("nobody", "first")] == [401, 200]
        assert await answer(socket, ask("a", 1)) == {"id": "a", **AUTH_REQUIRED}
        it.gateway.prepare(keys())()
        assert [await status(it, name) for name in ("nobody", "first")] == [401, 401]


def test_an_edit_that_no_start_would_take_changes_nothing() -> None:
    config = structs.replace(keys("old"), host="0.0.0.0")
    authenticator = Authenticator(config, Limits(), lambda: 0.0)
    with pytest.raises(BadRequest, match="without any key"):
        authenticator.prepare(structs.replace(config, keys=()))
    assert authenticator.check(token_of("old"), "a").name == "old"


def test_a_revoked_token_is_a_wrong_one_for_the_throttle_too() -> None:
    authenticator = Authenticator(keys("old"), Limits(failures=2), lambda: 0.0)
    authenticator.check(token_of("old"), "a")
    authenticator.prepare(keys("new"))()
    for _ in range(2):
        with pytest.raises(Unauthorized):
            authenticator.check(token_of("old"), "a")
    with pytest.raises(RateLimited, match="too many wrong tokens"):
        authenticator.check(token_of("old"), "a")


def written(file: Path, text: str, *names: str) -> None:
    """As editors do it, in one step."""
    new = file.with_suffix(".new")
    new.write_text(
        text + "".join(f'[[gateway.keys]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\n' for name in names)
    )
    new.replace(file)


async def test_the_file_of_a_server_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "tg.toml"
    async with GatedOpenAi.listening() as provider:
        provider.gate.set()
        served = (
            "[gateway]\nport = 0\n"
            f'[models.m]\nprovider = "openai-compatible"\noptions = {{ base_url = "{provider.url}" }}\n'
            '[flows.default]\ntext-completion = { model = "m" }\n'
        )
        written(file, served, "old")
        with capture_logs() as logs:
            async with launcher.launch(ServeOptions(file=file)) as (_, url), ClientSession(url) as http:

                async def said(key: str) -> int:
                    async with http.post(COMPLETION, headers=bearer(key), json={"prompt": "p"}) as response:
                        return response.status

                assert [await said(key) for key in ("old", "new")] == [200, 401]
                written(file, served.replace("[gateway]", "[gateway]\nbody_limit = 9"), "new")
                await until(lambda: any(line["event"] == "config.needs_restart" for line in logs))
                assert [await said(key) for key in ("old", "new")] == [401, 200]
                written(file, served.replace("[gateway]", "[gateway]\nbody_limit = 0"), "old")
                await until(lambda: any(line["event"] == "config.refused" for line in logs))
                assert [await said(key) for key in ("old", "new")] == [401, 200]
    told = {line["event"]: line for line in logs if line["event"].startswith("config.")}
    assert told["config.in_force"]["keys"] == ["gateway.keys"]
    assert told["config.needs_restart"]["keys"] == ["gateway.body_limit"]
    assert told["config.refused"]["reason"] == f"{file}, line 2: gateway.body_limit must be a whole number >= 1"
