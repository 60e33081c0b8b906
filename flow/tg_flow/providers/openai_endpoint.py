"""Options and environment -> where an OpenAI-compatible API is, and with which key."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tg_schema.errors import BadRequest

_ROUTE = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API.

    Attributes:
        base_url: up to and without `/chat/completions`; for Azure OpenAI, the resource's URL.
        key: None = the server needs none.
        deployment: for Azure OpenAI, the deployment's name; "" = another API.
        api_version: for Azure OpenAI.
    """

    base_url: str
    key: str | None = field(repr=False)
    deployment: str = ""
    api_version: str = ""


def base_url_from(said: str | None, variables: Sequence[str], default: str | None, path: str) -> str:
    """What the configuration says, else what one of the environment variables says, else the default.

    Args:
        said: the configuration's `base_url`.
        variables: names of environment variables, the first that is set wins. Their URLs may end in the API's route,
            and one without any path gets `path`, as the predecessor's variables want it.
        default: None = there is none.
        path: for instance "/v1".

    Raises:
        BadRequest: there is no URL, or it is none of an API.
    """
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), None)
    if said is None and found is not None:
        said = found.rstrip("/").removesuffix(_ROUTE)
        said = said if urlsplit(said).path else said + path
    url = default if said is None else said
    if url is None:
        where = " or ".join(variables)
        raise BadRequest(f"this provider needs the URL of its API: set base_url, or the environment variable {where}")
    check_base_url(url)
    return url


def check_base_url(base_url: str) -> None:
    """Raises: BadRequest, if this cannot be the URL of an API; it is not repeated, as it may hold a password."""
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise BadRequest(
            "base_url must be an http:// or https:// URL without user name and query, and usually ends in /v1"
        )
