"""Tools that ask over HTTP: what goes into an address, which addresses may be reached, and nothing kept from a call."""

import socket
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.flow.agent_turns import call, observed, refusal
from tg_base.config import ToolConfig
from tg_base.telemetry import Span, trace
from tg_flow.agent.tools.address_guard import AddressGuard, PrivateAddress
from tg_flow.agent.tools.http_tool import MAX_ERROR_CHARACTERS, HttpOptions, HttpTool
from tg_schema import Tool
from tg_schema.errors import BadRequest, ProviderAuth


def http(name: str, url: str, allow: str = "127.0.0.0/8", more: str = "") -> str:
    """The table of one tool."""
    options = f'options = {{ url = "{url}", allow_private = ["{allow}"] }}'
    return f'\n[tools.{name}]\nkind = "http"\n{options}\n{more}'


class Weather:
    """A loopback server."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, str]] = []
        self.cookies: list[str] = []
        self.ids: list[tuple[str | None, str | None]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.requests.append((request.method, str(request.rel_url), body, request.headers.get("X-Key", "")))
        self.cookies.append(request.headers.get("Cookie", ""))
        self.ids.append((request.headers.get("X-Request-Id"), request.headers.get("traceparent")))
        if request.path == "/cookie":
            answer = web.Response(text="set")
            answer.set_cookie("session", f"of user {len(self.cookies)}")
            return answer
        if request.path == "/missing":
            return web.Response(status=404, text="no such city")
        if request.path == "/away":
            raise web.HTTPFound("http://127.0.0.1:1/")
        if request.path == "/picture":
            return web.Response(body=b"\x89PNG", content_type="image/png")
        if request.path == "/endless":
            endless = web.StreamResponse(status=500, headers={"Content-Type": "text/plain"})
            await endless.prepare(request)
            while True:
                await endless.write(b"x" * MAX_ERROR_CHARACTERS)
        if request.path.startswith("/said-in/"):
            kind = f"text/plain; charset={request.path.removeprefix('/said-in/')}"
            return web.Response(body=zlib.compress(b"sun" * 100_000), headers={"Content-Type": kind})
        return web.json_response({"sun": True, "é": 1})


@pytest.fixture
async def weather() -> Weather:
    return Weather()


@pytest.fixture
async def url(weather: Weather) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{rest:.*}", weather.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_http(tmp_path: Path, url: str, weather: Weather, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("WEATHER_KEY", "canary-key")
    options = f'url = "{url}/at/{{city}}", secrets = {{ X-Key = "WEATHER_KEY" }}, allow_private = ["127.0.0.1"]'
    arguments = 'arguments.required = ["city"]\narguments.properties.city.type = "string"\n'
    arguments += "arguments.additionalProperties = true\n"
    config = f'\n[tools.get]\nkind = "http"\noptions = {{ {options} }}\n{arguments}'
    config += f'\n[tools.post]\nkind = "http"\noptions = {{ {options}, method = "POST" }}\n{arguments}'
    city = "Saint-Denis / é?#"
    seen = await observed(
        tmp_path,
        config,
        call("get", city=city, days=[1, 2], full=True),
        call("post", city="b", days=3),
        call("get", city=".."),
    )
    assert seen[:2] == ['{"sun": true, "\\u00e9": 1}'] * 2
    assert seen[2] == 'error: the argument "city" cannot be ".."'
    quoted = "/at/Saint-Denis%20%2F%20%C3%A9%3F%23"
    assert weather.requests == [
        ("GET", f"{quoted}?days=1&days=2&full=true", "", "canary-key"),
        ("POST", "/at/b", '{"days": 3}', "canary-key"),
    ]


async def test_an_error_without_an_end_is_not_read_to_its_end(tmp_path: Path, url: str) -> None:
    (seen,) = await observed(tmp_path, http("endless", f"{url}/endless", more="timeout = 10"), call("endless"))
    assert seen.endswith("error: the server answered with the status 500")


@pytest.mark.parametrize("charset", ["zlib", "hex", "base64", "rot13", "nonsense"])
async def test_an_encoding_that_is_none_of_text(tmp_path: Path, url: str, charset: str) -> None:
    (seen,) = await observed(tmp_path, http("said", f"{url}/said-in/{charset}"), call("said"))
    assert seen == "error: the server's answer is in an unknown encoding"


async def test_http_that_goes_wrong(tmp_path: Path, url: str) -> None:
    config = http("missing", f"{url}/missing") + http("away", f"{url}/away") + http("picture", f"{url}/picture")
    config += http("nobody", "http://127.0.0.1:1/")
    seen = await observed(tmp_path, config, *(call(name) for name in ("missing", "away", "picture", "nobody")))
    assert seen == [
        "no such city\nerror: the server answered with the status 404",
        "302: Found\nerror: the server answered with the status 302",
        "error: the server's answer is not text",
        "error: the server could not be reached, or did not answer properly",
    ]


async def test_http_whose_host_a_model_would_choose_is_refused(tmp_path: Path) -> None:
    for address in ("http://{host}/", "ftp://x/", "x"):
        error = await refusal(tmp_path, f'\n[tools.x]\nkind = "http"\noptions.url = "{address}"\n')
        assert "is no address" in error.message
    error = await refusal(
        tmp_path, '\n[tools.x]\nkind = "http"\noptions = { url = "http://x/", secrets = { A = "NOT_SET" } }\n'
    )
    assert isinstance(error, ProviderAuth)
    assert "NOT_SET" in error.message


async def test_calls_share_no_cookies(tmp_path: Path, url: str, weather: Weather) -> None:
    await observed(tmp_path, http("get", f"{url}/cookie"), call("get"), call("get"))
    assert weather.cookies == ["", ""]


async def test_an_argument_that_is_not_declared_is_refused(tmp_path: Path, url: str, weather: Weather) -> None:
    config = http("orders", f"{url}/orders/{{id}}") + http("free", f"{url}/free", more="arguments.properties.a = {}\n")
    seen = await observed(
        tmp_path,
        config,
        call("orders", id="7", admin=True),
        call("orders", id="7"),
        call("free", admin=True),
        call("free", a=1),
    )
    assert [text[:30] for text in seen[::2]] == ["error: the arguments do not fi"] * 2
    assert [path for _, path, _, _ in weather.requests] == ["/orders/7", "/free?a=1"]


async def test_what_may_be_more_is_said(tmp_path: Path, url: str, weather: Weather) -> None:
    more = "arguments.additionalProperties = true\n"
    await observed(tmp_path, http("any", f"{url}/any", more=more), call("any", b=2))
    assert [path for _, path, _, _ in weather.requests] == ["/any?b=2"]


@pytest.mark.parametrize(
    ("place", "arguments", "reason"),
    [
        ("/orders/{id}", {"id": ""}, "empty"),
        ("/orders/{id}/lines", {"id": ""}, "empty"),
        ("/orders/o-{id}", {"id": ""}, "empty"),
        ("/orders/{id}", {"id": ".."}, '".."'),
        ("/a/{x}{y}/b", {"x": ".", "y": "."}, '"."'),
        ("/a/.{x}/b", {"x": "."}, '"."'),
    ],
)
async def test_an_argument_leads_to_no_other_resource(
    tmp_path: Path, url: str, place: str, arguments: dict[str, str], reason: str
) -> None:
    (seen,) = await observed(tmp_path, http("get", url + place), call("get", **arguments))
    assert seen == f'error: the argument "{next(iter(arguments))}" cannot be {reason}'


async def test_an_empty_argument_of_the_query_is_one(tmp_path: Path, url: str, weather: Weather) -> None:
    await observed(tmp_path, http("get", f"{url}/find?q={{q}}"), call("get", q=""))
    assert [path for _, path, _, _ in weather.requests] == ["/find?q="]


PRIVATE = [
    "127.0.0.1",
    "[::1]",
    "10.1.2.3",
    "192.168.0.1",
    "172.16.0.9",
    "169.254.169.254",
    "[fe80::1]",
    "[fd00::1]",
    "0.0.0.0",
    "[::]",
    "100.64.0.1",
    "224.0.0.1",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "localhost",
    "LOCALHOST.",
    "any.localhost",
]


@pytest.mark.parametrize("host", PRIVATE)
async def test_a_private_address_refuses_the_start_unless_it_is_allowed_by_name(host: str, tmp_path: Path) -> None:
    error = await refusal(tmp_path, http("x", f"http://{host}:1/", allow="10.99.0.0/16"))
    assert isinstance(error, BadRequest)
    assert "is private; if the tool shall reach it, write options.allow_private" in error.message
    AddressGuard(host.strip("[]"), (host.strip("[]"),))


@contextmanager
def resolver(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> Iterator[None]:
    """This machine's resolver, for names that no resolver knows (RFC 6761: .invalid)."""
    true = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *more: int, **options: int) -> list[object]:
        addresses = names.get(host.partition(".")[0], [host]) if host.endswith(".invalid") else [host]
        return [info for address in addresses for info in true(address, port, *more, **options)]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", getaddrinfo)
        yield


async def test_a_name_that_leads_to_a_private_address_is_not_followed(
    tmp_path: Path, url: str, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whichever of its addresses; the address that is connected to counts, whatever the name said before."""
    port = url.rpartition(":")[2]
    config = http("evil", f"http://evil.invalid:{port}/", allow="10.0.0.0/8")
    config += http("named", f"http://named.invalid:{port}/", allow="named.invalid")
    config += http("network", f"http://network.invalid:{port}/", allow="127.0.0.0/24")
    addresses = ["127.0.0.1", "::1", "169.254.169.254"]
    with resolver(monkeypatch, evil=addresses, named=["127.0.0.1"], network=["127.0.0.1"]):
        seen = await observed(tmp_path, config, call("evil"), call("named"), call("network"))
    assert seen[0] == "error: the server's address is private, and the tool may not reach it"
    assert [text[:5] for text in seen[1:]] == ['{"sun'] * 2
    assert len(weather.requests) == 2


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111"])
def test_public_addresses_are_reached(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    AddressGuard("public.example", ()).socket((family, socket.SOCK_STREAM, 0, "", (address, 443))).close()
    with pytest.raises(PrivateAddress):
        AddressGuard("public.example", ()).socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 443)))


@pytest.mark.parametrize("entry", ["", "http://x/", "10.0.0.0/99", "a b"])
async def test_what_is_no_host_and_no_network_is_refused(entry: str, tmp_path: Path) -> None:
    error = await refusal(tmp_path, http("x", "https://public.example/", allow=entry))
    assert "name a host, an address or a network" in error.message


@pytest.mark.parametrize("address", ["http://x:port/", "http:///x", "http://[::1/"])
async def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    assert "is no address" in (await refusal(tmp_path, http("x", address))).message


async def test_the_server_gets_the_ids_of_the_request(weather: Weather, url: str) -> None:
    options = HttpOptions(url=f"{url}/now", allow_private=("127.0.0.0/8",), headers={"X-Request-Id": "always"})
    tool = HttpTool(Tool("now", ""), ToolConfig(kind="http"), options)
    spans = [Span.at_door(name, None) for name in ("r-1", "r-2")]
    for span in spans:
        trace.enter(span)
        assert "".join([str(piece) async for piece in tool.call({})])
    await tool.aclose()
    assert weather.ids == [(span.request, span.traceparent) for span in spans]
