"""Agent -> HTTP: one request to one address; the body of the response streams as the observation."""

import codecs
import re
from collections.abc import AsyncGenerator
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
import structlog
from typing_extensions import override
from yarl import URL

from tg_base.config import ToolConfig
from tg_base.telemetry import trace
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, declare, read_secrets
from tg_flow.agent.tools.address_guard import AddressGuard, PrivateAddress
from tg_schema import Tool, encode
from tg_schema.errors import BadRequest, ProtocolError, Unavailable

log = structlog.get_logger()

MAX_ERROR_CHARACTERS = 2000
"""Most characters of a failed request's response body that the model gets."""

_PRIVATE = "the server's address is private, and the tool may not reach it"
_ARGUMENT = re.compile(r"\{(\w+)\}")
_TEXT = re.compile(r"text/|application/(.*\+)?(json|xml|yaml|javascript|x-ndjson)")


class HttpOptions(ToolOptions, frozen=True, kw_only=True):
    """The request.

    Attributes:
        url: the URL. `{argument}` in its path or query is replaced, but never in its host, which no model may choose.
        method: GET and DELETE send all other arguments in the query, the other methods as a JSON body.
        headers: sent with every request.
        secrets: headers with secret values, each with the name of the environment variable that holds the value.
        allow_private: hosts, addresses and networks that may be reached although they are not public.
    """

    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    allow_private: tuple[str, ...] = ()


class HttpTool(AgentTool):
    """One URL. It follows no redirects, so that no response can choose another host. Calls share no cookies."""

    Options = HttpOptions

    def __init__(self, declaration: Tool, table: ToolConfig, options: HttpOptions) -> None:
        super().__init__(declaration, table)
        self._options = options
        guard = AddressGuard(URL(options.url).host or "", options.allow_private)
        self._session = aiohttp.ClientSession(
            headers=options.headers | read_secrets(options.secrets, "the header {}"),
            connector=aiohttp.TCPConnector(socket_factory=guard.socket),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: HttpOptions, context: ToolContext) -> tuple[Self, ...]:
        _check_url(options.url)
        names = _ARGUMENT.findall(options.url)
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
        tool = declare(name, table, "", schema)
        closed = msgspec.structs.replace(tool, parameters={"additionalProperties": False} | tool.parameters)
        return (cls(closed, table, options),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        url, rest = _fill_url(self._options.url, arguments)
        in_query = self._options.method in {"GET", "DELETE"}
        query = [(name, _word(one)) for name, value in rest.items() for one in _each(value)] if in_query else []
        # The path is quoted already: yarl must not normalize a dot or slash from an argument.
        address = URL(url, encoded=True)
        try:
            async with self._session.request(
                self._options.method,
                address.extend_query(query) if query else address,
                json=None if in_query else rest,
                headers=trace.headers(),
                allow_redirects=False,
                # The loop limits the time of the whole call; aiohttp's own timeout would give a different error.
                timeout=aiohttp.ClientTimeout(total=None),
            ) as response:
                length = 0
                async for text in _texts(response):
                    length += len(text)
                    if response.status >= 300 and length > MAX_ERROR_CHARACTERS:
                        break
                    yield text
                if response.status >= 300:
                    raise Unavailable(f"the server answered with the status {response.status}")
        except aiohttp.ClientError as error:
            # aiohttp wraps the exception that the guard raises while a socket is created.
            if isinstance(getattr(error, "os_error", None), PrivateAddress):
                log.warning("tool.private_address", tool=self.declaration.name, advice="see options.allow_private")
                raise Unavailable(_PRIVATE) from None
            raise Unavailable("the server could not be reached, or did not answer properly") from None

    @override
    async def aclose(self) -> None:
        await self._session.close()


def _check_url(url: str) -> None:
    try:
        parts, host = urlsplit(url), URL(url, encoded=True).host
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host or "{" in parts.netloc:
        raise BadRequest(f'"{url}" is no address; write "https://HOST/path/{{argument}}"').at("url")


def _fill_url(url: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The URL, and the arguments that are not part of it. No argument can lead to another resource."""
    path, mark, query = url.partition("?")
    segments = [_segment(segment, arguments) for segment in path.split("/")]
    query = _ARGUMENT.sub(lambda found: _quote(found[1], arguments), query)
    in_it = set(_ARGUMENT.findall(url))
    rest = {name: value for name, value in arguments.items() if name not in in_it}
    return "/".join(segments) + mark + query, rest


def _segment(segment: str, arguments: dict[str, Any]) -> str:
    """One segment of the path. An empty argument is rejected, because it would address the whole collection."""
    names = _ARGUMENT.findall(segment)
    words = {name: _quote(name, arguments) for name in names}
    for name, word in words.items():
        if not word:
            raise BadRequest(f'the argument "{name}" cannot be empty')
    filled = _ARGUMENT.sub(lambda found: words[found[1]], segment)
    if names and filled in {".", ".."}:
        raise BadRequest(f'the argument "{names[0]}" cannot be "{arguments[names[0]]}"')
    return filled


def _quote(name: str, arguments: dict[str, Any]) -> str:
    if (given := arguments.get(name)) is None:
        raise BadRequest(f'the argument "{name}" is missing')
    return quote(_word(given), safe="", errors="replace")


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


async def _texts(response: aiohttp.ClientResponse) -> AsyncGenerator[str, None]:
    if response.content_type and not _TEXT.match(response.content_type):
        if response.status < 300:
            raise ProtocolError("the server's answer is not text")
        return
    charset = response.charset or "utf-8"
    try:
        # Unlike `codecs`, `decode` refuses codecs from bytes to bytes, such as zlib, which may inflate one byte to a
        # thousand.
        b" ".decode(charset, "replace")
        decoder = codecs.getincrementaldecoder(charset)("replace")
    except (LookupError, UnicodeError):
        raise ProtocolError("the server's answer is in an unknown encoding") from None
    async for data in response.content.iter_any():
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)
