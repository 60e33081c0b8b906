"""Options and load calls -> the files of LoRA adapters, of which those loaded at run time lie in one folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from tg_llama.core import model_file
from tg_schema import TgError
from tg_schema.errors import BadRequest, NotFound

AdapterName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z",
        description="an adapter's name: at most 128 letters, digits, dots, dashes, underscores and slashes",
    ),
]
"""A colon parts a model from its adapter, and vLLM's metrics part adapters by commas."""

MAX_PATH_CHARACTERS = 1_024
"""The most characters of a load call's path."""


class AdapterFile(NamedTuple):
    """Where an adapter is.

    Attributes:
        path: on this machine.
        root: the same path as its operator wrote it.
    """

    path: Path
    root: str


def find_adapter_files(adapters: Mapping[str, str], *, fetch: bool = True) -> dict[str, AdapterFile]:
    """The file of each configured adapter; blocks while one is downloaded.

    Args:
        adapters: paths, or files of the Hugging Face hub, by name.
        fetch: False leaves out those that have not been downloaded, but could be.

    Raises:
        TgError: as `model_file`; `option` has the adapter's name.
    """
    found: dict[str, AdapterFile] = {}
    for name, path in adapters.items():
        try:
            if not path:
                raise BadRequest("give the path of a LoRA adapter's GGUF file")
            file = model_file(path, fetch=fetch)
        except TgError as error:
            raise error.at("adapters", name) from None
        if file is not None:
            found[name] = AdapterFile(file, path)
    return found


def find_loaded_file(folder: str, name: str, path: str) -> AdapterFile:
    """The file that a load call names.

    Args:
        folder: adapters may be loaded from it, and from the folders below.
        name: the new adapter's.
        path: absolute, or relative to `folder`.

    Raises:
        BadRequest: the name has other characters than letters, digits, `._/-`; or the path leads out of the folder, by
            symbolic links too.
        NotFound: there is no such file.
    """
    try:
        msgspec.convert(name, AdapterName)
    except msgspec.ValidationError:
        raise BadRequest("lora_name may have 128 letters, digits, dots, dashes, slashes and underscores") from None
    root = Path(folder).expanduser().resolve()
    try:
        # The answer to a client's call must not reveal which files exist elsewhere on this machine.
        file = (root / path).resolve()
        if not file.is_relative_to(root):
            raise BadRequest("lora_path must be a file in the folder from which adapters may be loaded")
        # Normalize the path, which travels with each heartbeat: repeated "./" would make it arbitrarily long.
        exists = len(path) <= MAX_PATH_CHARACTERS and file.is_file()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise NotFound(f"Loading lora {name} failed: No adapter found for that lora_path")
    return AdapterFile(file, path)
