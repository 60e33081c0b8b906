"""Where the gateway is and who asks: from an argument, from the environment, or the default."""

import os
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

from tg_schema.errors import BadRequest

DEFAULT_URL = "http://localhost:8888/"
URL_VARIABLE = "TOKENGRID_URL"
TOKEN_VARIABLE = "TOKENGRID_TOKEN"  # noqa: S105 - the name of the variable, not its value
_WRONG_URL = "the gateway's URL must look like http://host:port/ or https://host/"


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's base URL, with a slash at its end."""

    base: str

    @classmethod
    def of(cls, url: str | None) -> Self:
        """The address for a URL; None takes TOKENGRID_URL, or `http://localhost:8888/` where that is not set.

        Raises:
            BadRequest: not a URL of http or https with a host, or one that carries a password.
        """
        url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).strip()
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise BadRequest(_WRONG_URL) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise BadRequest(_WRONG_URL)
        if "@" in parts.netloc:
            raise BadRequest(f"the gateway's URL must not carry a password: put the token into {TOKEN_VARIABLE}")
        return cls(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/")

    def service(self, flow: str, service: str) -> str:
        """Where one service of one flow takes requests.

        Raises:
            BadRequest: the flow's id cannot be a part of a path.
        """
        try:
            name = quote(flow, safe="")
        except UnicodeEncodeError:
            name = ""
        if name in {"", ".", ".."}:
            raise BadRequest("the flow's id is none: name the flow, for instance default")
        return f"{self.base}api/v1/flow/{name}/service/{service}"

    @property
    def socket(self) -> str:
        """Where the WebSocket is."""
        return f"{self.base}api/v1/socket"


def bearer_token(token: str | None) -> str | None:
    """The token to show; None takes TOKENGRID_TOKEN, and there may be none at all.

    Raises:
        BadRequest: it has characters that no header can carry.
    """
    token = (token or os.environ.get(TOKEN_VARIABLE) or "").strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest(f"the token has characters that a token cannot have; check {TOKEN_VARIABLE}")
    return token or None
