"""Options and environment -> base URL of a provider's API; a wrong one would get the provider's key."""

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from tg_schema.errors import BadRequest

_ROUTE = "/chat/completions"
"""Suffix of the URL in some users' variables, as in TrustGraph's; it is removed."""


def base_url_from(configured: str | None, variables: Sequence[str], default: str | None, path: str = "") -> str | None:
    """The configured URL, else that of an environment variable, else the default.

    Args:
        configured: the configuration's `base_url`.
        variables: names of environment variables; the first that is set wins. Their URLs may end in the route of
            OpenAI's chat completions.
        default: None = there is none, or the provider's SDK has one.
        path: appended to a variable's URL without any path, for instance "/v1".

    Raises:
        BadRequest: the URL is not one of an API.
    """
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), None)
    if configured is not None:
        _check(configured, "base_url")
        return configured
    if found is None:
        if default is not None:
            _check(default, "default_base_url")
        return default
    url = found.rstrip("/").removesuffix(_ROUTE)
    _check(url)
    return url if urlsplit(url).path else url + path


def _check(url: str, *option: str) -> None:
    """Raises BadRequest if this cannot be the URL of an API. The message leaves it out: it may contain a password."""
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query
        _ = parts.port  # urlsplit checks the port only here, and raises ValueError.
    except ValueError:
        wrong = True
    if wrong:
        sentence = "base_url must be an http:// or https:// URL of an API, without user name and query"
        raise BadRequest(sentence).at(*option)
