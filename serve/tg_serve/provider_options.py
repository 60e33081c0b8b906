"""NAME=VALUE on the command line -> options of a provider."""

import tomllib
from collections.abc import Iterable
from typing import Any

import click


def is_pair(word: str) -> bool:
    """Whether a word is NAME=VALUE. A model's name rarely has a `=` after a plain identifier."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def read_provider_options(base_url: str | None, pairs: Iterable[str]) -> dict[str, Any]:
    """The provider's options: `--base-url`, and NAME=VALUE pairs whose value is TOML, or else plain text.

    Raises:
        UsageError: a pair is malformed.
    """
    options: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{pair!r} is no option of a provider: write NAME=VALUE")
        try:
            options[name] = tomllib.loads(f"value = {value}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            options[name] = value
    return options
