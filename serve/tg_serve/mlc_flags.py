"""The flags of `mlc_llm serve` -> our options, or a sentence why a flag has no meaning here."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Final

import click

_SLOTS_OF_MODE: Final[Mapping[str, int | None]] = {"local": 4, "interactive": 1, "server": None}
"""Concurrent streams; None = the provider's default."""
_OVERRIDES: Final = {"max_num_sequence": "slots", "context_window_size": "context", "prefill_chunk_size": "batch"}
"""Fields of MLC's engine that llama-cpp has too, with llama-cpp's names for them."""
_ENGINE_ALONE: Final = {
    "model_lib": "models are files of GGUF, which need no library",
    "embedding_model": "every model of llama-cpp has vectors; name others in a configuration",
    "prefix_cache_mode": "there is nothing to choose",
    "prefill_mode": "there is nothing to choose",
    "enable_debug": "debug_config.ignore_eos needs no flag, and the rest exists only in MLC's engine",
}
"""Flags that are refused, and why they are not needed."""
_ANY: Final = ("*",)


@dataclass(frozen=True, slots=True)
class MlcFlags:
    """The flags as they were given; None = not given."""

    mode: str | None = None
    overrides: str | None = None
    device: str | None = None
    speculative_mode: str | None = None
    enable_tracing: bool | None = None
    api_key: str | None = None
    allow_origins: str | None = None
    allow_methods: str | None = None
    allow_headers: str | None = None
    model_lib: str | None = None
    additional_models: tuple[str, ...] = ()
    embedding_model: str | None = None
    prefix_cache_mode: str | None = None
    prefill_mode: str | None = None
    enable_debug: bool | None = None
    allow_credentials: bool | None = None

    def check(self) -> None:
        """Refuse flags without a meaning here.

        Raises:
            UsageError: a flag makes sense for MLC's engine only; the message says what to do.
        """
        for name, why in _ENGINE_ALONE.items():
            if getattr(self, name) is not None:
                raise click.UsageError(f"{_spell(name)} is for MLC's own server: {why}; leave it out")
        if self.device is not None and self.device.partition(":")[0] not in {"auto", "cpu"}:
            raise click.UsageError("--device must be auto or cpu: llama-cpp runs here on the CPU")
        # An empty key probably comes from an unset variable: without a key, everybody could ask.
        if self.api_key is not None and not self.api_key.strip():
            raise click.UsageError("--api-key is empty: give the key that every request needs, or leave it out")
        if self.speculative_mode not in {None, "disable"}:
            raise click.UsageError("--speculative-mode must be disable: no model here drafts tokens for another")
        for name in ("allow_methods", "allow_headers"):
            given = getattr(self, name)
            if given is not None and _read_list(name, given) != _ANY:
                allowed = "an allowed origin may use every method and header of a path"
                raise click.UsageError(f'{_spell(name)} must be ["*"]: {allowed}')

    @property
    def options(self) -> dict[str, Any]:
        """The provider's options.

        Raises:
            UsageError: an override is malformed, or llama-cpp does not have it.
        """
        slots = _SLOTS_OF_MODE.get(self.mode or "")
        options: dict[str, Any] = {} if slots is None else {"slots": slots}
        for pair in filter(None, (self.overrides or "").split(";")):
            name, _, value = (part.strip() for part in pair.partition("="))
            if name not in _OVERRIDES:
                known = ", ".join(_OVERRIDES)
                raise click.UsageError(f"--overrides {name} means nothing to llama-cpp; leave it out. Known: {known}")
            if not value.isdecimal():
                raise click.UsageError(f"--overrides {name} must be a number, as in {name}=4")
            options[_OVERRIDES[name]] = int(value)
        return options

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are served beside the first; one flag may name several, separated by blanks.

        Raises:
            UsageError: a model is named together with a library.
        """
        named = tuple(name for given in self.additional_models for name in given.split())
        if any("," in name for name in named):
            raise click.UsageError("--additional-models: models are files of GGUF, which need no library after a comma")
        return named

    @property
    def origins(self) -> tuple[str, ...] | None:
        """Whose pages may use the gateway; None = as configured.

        Raises:
            UsageError: the value is not a JSON list of texts.
        """
        return None if self.allow_origins is None else _read_list("allow_origins", self.allow_origins)

    @property
    def key(self) -> str | None:
        """The SHA-256 of a key that is needed, in hex; None = as configured."""
        # Only the digest, as in the configuration: no object of ours holds a key itself.
        return None if self.api_key is None else hashlib.sha256(self.api_key.encode()).hexdigest()


def take_mlc_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with these flags, passed as its argument `mlc`. Both of MLC's spellings are accepted.

    The help does not list them: doors/docs/mlc-llm.md does.
    """

    @wraps(command)
    def take(**given: Any) -> None:
        flags = MlcFlags(**{field.name: given.pop(field.name) for field in fields(MlcFlags)})
        command(mlc=flags, **given)

    wrapped: Callable[..., None] = take
    for field in fields(MlcFlags):
        spellings = {_spell(field.name), _spell(field.name).replace("--allow-", "--allowed-")}
        is_flag, several = field.type == bool | None, field.name == "additional_models"
        kind = click.Choice(tuple(_SLOTS_OF_MODE)) if field.name == "mode" else None
        option = click.option(
            *sorted(spellings), field.name, is_flag=is_flag, default=None, hidden=True, type=kind, multiple=several
        )
        wrapped = option(wrapped)
    return wrapped


def _spell(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _read_list(name: str, given: str) -> tuple[str, ...]:
    try:
        listed = json.loads(given)
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise click.UsageError(f'{_spell(name)} must be a list of texts in JSON, such as ["*"]')
    return tuple(listed)
