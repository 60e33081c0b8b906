"""Configuration -> bus: how to connect to a broker."""

import os
from pathlib import Path

import msgspec

from tg_schema.errors import BadRequest


class BusOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to connect to a broker; `memory://` needs none of it. Names where a secret is, never the secret."""

    token_env: str | None = None
    """Environment variable that holds the broker's token."""
    token_file: Path | None = None
    """File that holds the broker's token; read at every connect, so that it can be renewed."""
    trust_certs: Path | None = None
    """PEM file of the authorities that sign the broker's certificate; None = the public ones (certifi)."""
    listener_name: str | None = None
    """Which of the broker's advertised listeners to use."""

    def token(self) -> str | None:
        """The broker's token; None if no source is named.

        Raises:
            BadRequest: the variable or file that should hold it is missing, empty or not text.
        """
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                sentence = f"the environment variable {self.token_env} should hold the broker's token; set it"
                raise BadRequest(sentence).at("options", "token_env")
            return token
        if self.token_file is not None:
            return _text_of(self.token_file)
        return None


def _text_of(file: Path) -> str:
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        sentence = f"the file {file} should hold the broker's token; it is missing, empty or unreadable"
        raise BadRequest(sentence).at("options", "token_file")
    return text
