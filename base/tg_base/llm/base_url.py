"""Options and environment -> where a provider's API is, so that its key goes nowhere else."""

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from tg_schema.errors import BadRequest

_ROUTE = "/chat/completions"
"""What some users' variables have at their end, as TrustGraph's did."""


def base_url_from(said: str | None, variables: Sequence[str], default: str | None, path: str = "") -> str | None:
    """What the configuration says, else what one of the environment variables says, else the default.

    Args:
        said: the configuration's `base_url`.
        variables: names of environment variables, the first that is set wins. Their URLs may end in the route of
            OpenAI's chat completions, and one without any path gets `path`.
        default: None = there is none, or the provider's SDK has it.
        path: for instance "/v1".

    Raises:
        BadRequest: it is no URL of an API.
    """
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), None)
    if said is not None:
        _check(said, "base_url")
        return said
    if found is None:
        if default is not None:
            _check(default, "default_base_url")
        return default
    url = found.rstrip("/").removesuffix(_ROUTE)
    _check(url)
    return url if urlsplit(url).path else url + path


def _check(url: str, *option: str) -> None:
    """Raises: BadRequest, if this cannot be the URL of an API; it is not repeated, as it may hold a password."""
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query
        _ = parts.port
    except ValueError:
        wrong = True
    if wrong:
        sentence = "base_url must be an http:// or https:// URL of an API, without user name and query"
        raise BadRequest(sentence).at(*option)
