"""Environment -> a provider's key, or the file that contains it; kept out of every log, error and metric."""

import os
from pathlib import Path

from tg_base.llm.key_file import KeyFile, is_key
from tg_base.telemetry import hide_in_logs
from tg_schema.errors import BadRequest, ProviderAuth

FILE_SUFFIX = "_FILE"
"""Suffix of a variable that names the key's file, as in OPENAI_API_KEY_FILE."""

Key = str | KeyFile | None
"""A fixed key, a file whose key may be rotated, or None for a server without authentication."""


def key_from(variable: str | None, *older: str) -> str | None:
    """The current key in an environment variable, or in the file that `VARIABLE_FILE` names.

    Args:
        variable: its name; None or "" = the server needs no key.
        older: fallback variables, for instance TrustGraph's.

    Raises:
        ProviderAuth: as `find_key`.
    """
    key = find_key((variable, *older)) if variable else None
    return key.read_now() if isinstance(key, KeyFile) else key


def choose_key(file: str | None, variable: str | None, variables: tuple[str, ...], *, needed: bool = True) -> Key:
    """The key of the option `key_file`, else of the option `key_variable`, else as `find_key`.

    Args:
        file: path of the key's file.
        variable: the environment variable with the key (or `VARIABLE_FILE` with its file); "" = no key is needed.
        variables: searched if both options are absent.
        needed: whether one of `variables` must be set.

    Raises:
        BadRequest: both options are set.
        ProviderAuth: as `find_key`.
    """
    if file is not None and variable is not None:
        raise BadRequest("key_file and key_variable name two keys; remove one of them").at("key_file")
    if file is not None:
        return KeyFile(Path(file), "the option key_file", "key_file")
    if variable is not None:
        return find_key((variable,) if variable else ())
    return find_key(variables, needed=needed)


def find_key(variables: tuple[str, ...], *, needed: bool = True) -> Key:
    """The key in the first variable that is set, or the file that its `VARIABLE_FILE` names.

    Args:
        variables: their names; empty = the server needs no key.
        needed: whether one of them must be set.

    Raises:
        ProviderAuth: there is no key, there are two, or it is malformed. The message names the variable, never its
            value.
    """
    for name in variables:
        value, file = (os.environ.get(variable, "").strip() for variable in (name, name + FILE_SUFFIX))
        if value and file:
            raise ProviderAuth(f"{name} and {name}{FILE_SUFFIX} are both set; unset one of them")
        if file:
            return KeyFile(Path(file), f"the environment variable {name}{FILE_SUFFIX}")
        if value:
            return _check_key(name, value)
    if needed and variables:
        raise ProviderAuth(
            f"the environment variable {variables[0]} is not set: put the provider's key there, or name a file that "
            f'has it in {variables[0]}{FILE_SUFFIX}, or set key_variable = "" for a server that needs none'
        )
    return None


def _check_key(name: str, value: str) -> str:
    if not is_key(value):
        raise ProviderAuth(f"the environment variable {name} holds no key: a key is printable ASCII without blanks")
    hide_in_logs(value)
    return value
