"""Argument, environment or default -> the gateway's URL and the token."""

import os
import re
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tg_schema.errors import BadRequest
from tg_schema.usage_report import UsageRequest

DEFAULT_URL = "http://localhost:8888/"
URL_VARIABLE = "TOKENGRID_URL"
TOKEN_VARIABLE = "TOKENGRID_TOKEN"  # noqa: S105 - the name of the variable, not its value
_URL_VARIABLES = (URL_VARIABLE, "TRUSTGRAPH_URL")
_TOKEN_VARIABLES = (TOKEN_VARIABLE, "TRUSTGRAPH_TOKEN")
"""Our variable, and the one of TrustGraph's clients."""
WRONG_URL = "the gateway's URL must look like http://host:port/ or https://host/"
MAX_SHOWN_CHARACTERS = 100
"""Characters of a malformed URL that an error repeats."""


class Address(msgspec.Struct, frozen=True):
    """A gateway's base URL, with a slash at its end."""

    base: str

    @classmethod
    def of(cls, url: str | None) -> Self:
        """The address for a URL; None = `find_url`, or else `http://localhost:8888/`.

        Raises:
            BadRequest: it is not an http or https URL with a host, or it contains a password.
        """
        url = (url or find_url() or DEFAULT_URL).strip()
        try:
            parts = urlsplit(url)
            # `port` raises a ValueError if it is not a number.
            _ = parts.port
        except ValueError:
            raise BadRequest(_wrong(url)) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise BadRequest(_wrong(url))
        if "@" in parts.netloc:
            raise BadRequest(f"the gateway's URL must not carry a password: put the token into {TOKEN_VARIABLE}")
        return cls(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/")

    def service(self, flow: str | None, service: str) -> str:
        """The URL of one service of one flow; None = the gateway chooses the flow.

        Raises:
            BadRequest: the flow's id cannot be a part of a path.
        """
        if flow is None:
            return f"{self.base}api/v1/{service}"
        try:
            name = quote(flow, safe="")
        except UnicodeEncodeError:
            name = ""
        if name in {"", ".", ".."}:
            raise BadRequest("the flow's id is not valid; name a flow, for example default")
        return f"{self.base}api/v1/flow/{name}/service/{service}"

    @property
    def models(self) -> str:
        """The URL of the list of models."""
        return f"{self.base}api/v1/models"

    @property
    def live(self) -> str:
        """The URL of the gateway's current state."""
        return f"{self.base}api/v1/live"

    def stop(self, stream: str) -> str:
        """The URL that stops a stream."""
        return f"{self.live}/streams/{quote(stream, safe='', errors='replace')}/stop"

    def kept(self, stream: str) -> str:
        """The URL of a kept stream."""
        return f"{self.base}v1/streams/{quote(stream, safe='', errors='replace')}"

    def records(self, stream: str, key: str | None = None) -> str:
        """The URL of the records of a kept stream; `key` is the name of its key, None = the client's."""
        query = urlencode({"form": "records"} | ({} if key is None else {"key": key}), errors="replace")
        return f"{self.kept(stream)}?{query}"

    def kept_of(self, key: str | None) -> str:
        """The URL of the list of a key's kept streams; None = the client's key."""
        return f"{self.base}v1/streams" + ("" if key is None else f"?{urlencode({'key': key}, errors='replace')}")

    def usage(self, request: UsageRequest) -> str:
        """The URL of the sums that a request asks for."""
        asked = {"by": ",".join(request.by), "since": request.since, "until": request.until, "key": request.key}
        query = urlencode({name: value for name, value in asked.items() if value}, errors="replace")
        return f"{self.base}api/v1/usage?{query}"


def find_url() -> str | None:
    """The gateway's URL in the environment: TOKENGRID_URL, or else TRUSTGRAPH_URL."""
    return _first_set(_URL_VARIABLES)


def bearer_token(token: str | None) -> str | None:
    """The token to send; None = TOKENGRID_TOKEN, or else TRUSTGRAPH_TOKEN, or else none.

    Raises:
        BadRequest: it has characters that are not allowed in a header.
    """
    token = (token or _first_set(_TOKEN_VARIABLES) or "").strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest(f"the token has characters that a token cannot have; check {TOKEN_VARIABLE}")
    return token or None


def _wrong(url: str) -> str:
    """The error for a malformed URL. It repeats nothing of the URL that may be a secret."""
    shown = re.split("[?#]", url)[0][:MAX_SHOWN_CHARACTERS]
    return WRONG_URL if "@" in url or not shown.isprintable() else f'{WRONG_URL}, not "{shown}"'


def _first_set(variables: tuple[str, ...]) -> str | None:
    values = (os.environ.get(name, "").strip() for name in variables)
    return next((value for value in values if value), None)
