"""Agent -> HTTP: one request of one address; the body of the answer streams as the observation."""

import codecs
import os
import re
from collections.abc import AsyncGenerator
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from typing_extensions import override
from yarl import URL

from tg_base.config import ToolConfig
from tg_flow.agent.agent_tool import AgentTool, Piece, Reach, ToolOptions, declared
from tg_schema import Tool
from tg_schema.codec import encode
from tg_schema.errors import BadRequest, ProtocolError, ProviderAuth, Unavailable

LONGEST_FAULT = 2000
"""Characters of the body of a failed request that the model is shown."""

_ARGUMENT = re.compile(r"\{(\w+)\}")
_TEXT = re.compile(r"text/|application/(.*\+)?(json|xml|yaml|javascript|x-ndjson)")


class HttpOptions(ToolOptions, frozen=True, kw_only=True):
    """What is asked.

    Attributes:
        url: the address; `{argument}` in its path or query is replaced. Never in its host: no model chooses that.
        method: all other arguments go into the query of GET and DELETE, and into the JSON body of the others.
        headers: sent with every request.
        secrets: headers whose values stand in environment variables, by the variable's name.
    """

    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: dict[str, str] = msgspec.field(default_factory=dict)


class HttpTool(AgentTool):
    """One address. Redirects are not followed, so that no answer chooses another host."""

    Options = HttpOptions

    def __init__(self, declaration: Tool, table: ToolConfig, options: HttpOptions) -> None:
        super().__init__(declaration, table)
        self._options = options
        self._session = aiohttp.ClientSession(headers=options.headers | _secrets(options))

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: HttpOptions, reach: Reach) -> tuple[Self, ...]:
        parts = urlsplit(options.url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or "{" in parts.netloc:
            raise BadRequest(f'"{options.url}" is no address; write "https://HOST/path/{{argument}}"')
        names = _ARGUMENT.findall(options.url)
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
        return (cls(declared(name, table, "", schema), table, options),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        url, rest = _filled(self._options.url, arguments)
        in_query = self._options.method in {"GET", "DELETE"}
        query = [(name, _word(one)) for name, value in rest.items() for one in _each(value)] if in_query else []
        address = URL(url, encoded=True)
        try:
            async with self._session.request(
                self._options.method,
                address.extend_query(query) if query else address,
                json=None if in_query else rest,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as response:
                length = 0
                async for text in _texts(response):
                    length += len(text)
                    if response.status < 300 or length <= LONGEST_FAULT:
                        yield text
                if response.status >= 300:
                    raise Unavailable(f"the server answered with the status {response.status}")
        except aiohttp.ClientError:
            raise Unavailable("the server could not be reached, or did not answer properly") from None

    @override
    async def aclose(self) -> None:
        await self._session.close()


def _secrets(options: HttpOptions) -> dict[str, str]:
    headers = {}
    for header, variable in options.secrets.items():
        if not (value := os.environ.get(variable, "")):
            raise ProviderAuth(f"the header {header} needs the environment variable {variable}; set it")
        headers[header] = value
    return headers


def _filled(url: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The address, and the arguments that are not in it."""
    rest = dict(arguments)

    def value(found: re.Match[str]) -> str:
        if (given := arguments.get(found[1])) is None:
            raise BadRequest(f'the argument "{found[1]}" is missing')
        rest.pop(found[1], None)
        word = _word(given)
        if word in {".", ".."}:
            raise BadRequest(f'the argument "{found[1]}" cannot be "{word}"')
        return quote(word, safe="")

    return _ARGUMENT.sub(value, url), rest


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


async def _texts(response: aiohttp.ClientResponse) -> AsyncGenerator[str, None]:
    if response.content_type and not _TEXT.match(response.content_type):
        if response.status < 300:
            raise ProtocolError("the server's answer is not text")
        return
    try:
        decoder = codecs.getincrementaldecoder(response.charset or "utf-8")("replace")
    except LookupError:
        raise ProtocolError("the server's answer is in an unknown encoding") from None
    async for data in response.content.iter_any():
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)
