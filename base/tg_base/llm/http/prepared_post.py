"""HttpPool -> aiohttp's pooled connections: small POST requests whose common part is made once, not for each.

aiohttp's session makes each request from its parts, writes it in a task of its own, and makes an answer that can do
more than ours. Here only connections, TLS, pooling and parsing are aiohttp's.
"""

import asyncio

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from tg_base.llm.http.connections import READ_BYTES, UPGRADE
from tg_base.llm.http.failures import CONNECT_TIMEOUT_SECONDS

CONNECT_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
"""No total timeout, because the guard times the content."""


class PostAnswer(msgspec.Struct, frozen=True, eq=False):
    """The reader of an answer's body, and the connection that it comes from."""

    body: aiohttp.StreamReader
    connection: Connection

    def close(self) -> None:
        """Close the connection, unless the whole answer has come."""
        if not self.connection.closed:
            # Tells a reader that waits.
            self.body.set_exception(aiohttp.ClientConnectionError())
        self.connection.close()


class PreparedPost(msgspec.Struct, frozen=True, eq=False):
    """What the POST requests to one URL have in common.

    Attributes:
        connector: has the connections.
        request: by which it finds one.
        head: the head of a request, up to the number of its body's bytes.
    """

    connector: aiohttp.BaseConnector
    request: aiohttp.ClientRequest
    head: bytes

    @override
    def __repr__(self) -> str:
        # The head has a key.
        return f"PreparedPost({show_place(self.request.url)})"

    async def send(self, body: bytes) -> tuple[RawResponseMessage, PostAnswer]:
        """Send a request and return the head and the body of its answer; the body does not keep the head in memory.

        Raises:
            Exception: those of `ClientSession.request`, or HttpProcessingError.
        """
        connection = await self.connector.connect(self.request, [], CONNECT_TIMEOUT)
        answer = None
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or protocol.should_close:
                raise aiohttp.ServerDisconnectedError
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=READ_BYTES)
            transport.write(b"%s%d\r\n\r\n%s" % (self.head, len(body), body))
            message, reader = await protocol.read()
            # Interim responses are passed over.
            while 100 <= message.code < 200 and message.code != UPGRADE:
                message, reader = await protocol.read()
            answer = PostAnswer(reader, connection)
        finally:
            if answer is None:
                connection.close()
        reader.on_eof(connection.release)
        return message, answer


def show_place(url: URL) -> str:
    """A URL for people, without a password or a query, which may have a key."""
    return f"{url.scheme}://{url.raw_host}{url.raw_path}"


def prepare_post(session: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str]) -> PreparedPost | None:
    """The common part of the requests; None if aiohttp has to look at each of them.

    Args:
        session: has the connections.
        url: already encoded, and not on the other side of a proxy.
        headers: those of all requests.
    """
    connector = session.connector
    plain = url.scheme in {"http", "https"} and url.raw_host and not (url.raw_user or url.raw_password)
    if connector is None or not plain or "Expect" in headers:
        return None
    request = aiohttp.ClientRequest("POST", url, headers=headers, session=session, loop=asyncio.get_running_loop())
    sent = request.headers
    sent.setdefault("Content-Type", "application/octet-stream")
    sent.pop("Content-Length", None)
    lines = [f"POST {url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    # aiohttp refuses a header with a line's end; all that is unusual is left to it.
    if not all(line.isprintable() for line in lines):
        return None
    return PreparedPost(connector, request, "\r\n".join([*lines, "Content-Length: "]).encode())
