"""Pages of other origins: refused unless they are configured, and then their browser is told so on every answer."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientResponse, WSServerHandshakeError
from msgspec import structs

from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.test_gateway_auth import LOCKED, RIGHT
from tg_base.config import GatewayConfig
from tg_gateway.access import Origins
from tg_schema.errors import BadRequest

PAGE = "https://app.example:8443"
OURS = GatewayConfig(port=0, drain=0.05, origins=(PAGE,))
PATH = "/api/v1/text-completion"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway(OURS) as opened:
        yield opened


def allowed(response: ClientResponse) -> str | None:
    """Whose page may read this answer."""
    return response.headers.get("Access-Control-Allow-Origin")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_configured_page_may_ask_and_read(it: Opened, streaming: bool) -> None:
    body = json.dumps({"prompt": "2", "streaming": streaming})
    async with it.http.post(PATH, data=body, headers={"Origin": PAGE}) as response:
        assert (response.status, allowed(response), response.headers["Vary"]) == (200, PAGE, "Origin")
        assert response.headers["Access-Control-Expose-Headers"] == "*"
        assert b"0 " in await response.read()


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/health", "GET", 200), (PATH, "POST", 400), ("/none", "GET", 404), (PATH, "GET", 405)],
)
async def test_a_configured_page_may_read_errors_and_probes(it: Opened, path: str, method: str, status: int) -> None:
    async with it.http.request(method, path, headers={"Origin": PAGE}) as response:
        assert (response.status, allowed(response)) == (status, PAGE)


async def test_its_browser_asks_before_without_a_key() -> None:
    async with open_gateway(structs.replace(LOCKED, origins=(PAGE,))) as it:
        async with it.http.options(PATH, headers={"Origin": PAGE, **PREFLIGHT}) as response:
            assert (response.status, allowed(response)) == (204, PAGE)
            assert response.headers["Access-Control-Allow-Methods"] == "POST"
            assert response.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
            assert int(response.headers["Access-Control-Max-Age"]) > 0
        async with it.http.post(PATH, data=b"{}", headers={"Origin": PAGE}) as response:
            assert (response.status, allowed(response)) == (401, PAGE)
        async with it.http.post(PATH, data=b'{"prompt":"1"}', headers={"Origin": PAGE, **RIGHT}) as response:
            assert response.status == 200


@pytest.mark.parametrize("origin", ["https://app.example", "http://app.example:8443", "https://evil.example", "null"])
async def test_another_page_may_not(it: Opened, origin: str) -> None:
    for method in ("OPTIONS", "POST"):
        async with it.http.request(method, PATH, data=b"{}", headers={"Origin": origin, **PREFLIGHT}) as response:
            assert (response.status, allowed(response)) == (403, None)
    with pytest.raises(WSServerHandshakeError) as refused:
        await it.http.ws_connect("/api/v1/socket", headers={"Origin": origin})
    assert refused.value.status == 403


async def test_a_configured_page_may_open_a_socket(it: Opened) -> None:
    async with it.http.ws_connect("/api/v1/socket", headers={"Origin": PAGE}) as socket:
        await socket.send_str('{"id":"a","service":"text-completion","request":{"prompt":"1"}}')
        assert json.loads((await socket.receive(timeout=10)).data)["response"]["response"] == "0 "


async def test_every_page_may_where_that_is_said() -> None:
    async with open_gateway(structs.replace(OURS, origins=("*",))) as it:
        for origin in ("https://one.example", "null"):
            async with it.http.get("/health", headers={"Origin": origin}) as response:
                assert allowed(response) == origin
        async with it.http.get("/health", headers={"Origin": PAGE, "Host": "evil.example"}) as response:
            assert response.status == 403, "a name that was made to point here"


@pytest.mark.parametrize("origin", ["https://\udcff.example", "\udcff"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_origin_that_no_browser_has_is_refused(origin: str, streaming: bool) -> None:
    async with open_gateway(structs.replace(OURS, origins=("*",))) as it, raw_connection(it.address) as raw:
        body = json.dumps({"prompt": "2", "streaming": streaming}).encode()
        headers = f"Host: localhost\r\nOrigin: {origin}\r\nContent-Length: {len(body)}\r\n"
        raw.send(f"POST {PATH} HTTP/1.1\r\n{headers}\r\n".encode(errors="surrogateescape") + body)
        assert await raw.until(b"\r\n") == b"HTTP/1.1 403 Forbidden\r\n"


async def test_a_configured_page_may_send_credentials() -> None:
    async with open_gateway(structs.replace(OURS, allow_credentials=True)) as it:
        for method, path in (("OPTIONS", PATH), ("GET", "/health"), ("GET", "/none")):
            async with it.http.request(method, path, headers={"Origin": PAGE, **PREFLIGHT}) as response:
                assert (allowed(response), response.headers["Access-Control-Allow-Credentials"]) == (PAGE, "true")
                assert "X-Request-Id" in response.headers["Access-Control-Expose-Headers"].split(", ")
        async with it.http.get("/health", headers={"Origin": "https://evil.example"}) as response:
            assert "Access-Control-Allow-Credentials" not in response.headers
        it.gateway.prepare(OURS)()
        async with it.http.get("/health", headers={"Origin": PAGE}) as response:
            assert "Access-Control-Allow-Credentials" not in response.headers
        with pytest.raises(BadRequest, match="name the origins"):
            it.gateway.prepare(structs.replace(OURS, origins=(PAGE, "*"), allow_credentials=True))


def test_not_every_page_may_send_credentials() -> None:
    with pytest.raises(BadRequest, match="name the origins") as refused:
        Origins(GatewayConfig(origins=("*",), allow_credentials=True))
    assert refused.value.option == ("allow_credentials",)


async def test_a_cache_is_told_that_an_answer_depends_on_the_page(it: Opened) -> None:
    async with it.http.get("/health") as response:
        assert response.headers["Vary"] == "Origin"
    async with open_gateway() as closed, closed.http.get("/health") as response:
        assert "Vary" not in response.headers


async def test_nothing_is_said_to_others_than_pages(it: Opened) -> None:
    async with it.http.get("/health") as response:
        assert (response.status, allowed(response)) == (200, None)
    async with it.http.options(PATH, headers=PREFLIGHT) as response:
        assert response.status == 405
    async with it.http.options(PATH) as response:
        assert response.status == 405


async def test_an_edit_is_in_force_at_once(it: Opened) -> None:
    it.gateway.prepare(structs.replace(OURS, origins=()))()
    async with it.http.get("/health", headers={"Origin": PAGE}) as response:
        assert response.status == 403


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://app.example/x", "", "https://a b"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(BadRequest, match="is no origin"):
        Origins(GatewayConfig(origins=(origin,)))
