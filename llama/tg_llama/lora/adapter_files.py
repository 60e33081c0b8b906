"""Options and load calls -> the files of LoRA adapters. Adapters loaded at run time must be in one folder."""

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
"""Names have no colon, which separates a model from its adapter, and no comma, which separates adapters in metrics."""

MAX_PATH_CHARACTERS = 1_024
"""Most characters of the path in a load call."""


class AdapterFile(NamedTuple):
    """Where an adapter is.

    Attributes:
        path: the file on this machine.
        root: the path as the operator or the load call wrote it.
    """

    path: Path
    root: str


def find_adapter_files(adapters: Mapping[str, str], *, fetch: bool = True) -> dict[str, AdapterFile]:
    """The file of each configured adapter; blocks while one is downloaded.

    Args:
        adapters: paths, or files of the Hugging Face hub, by name.
        fetch: False leaves out adapters that are not downloaded yet, but could be.

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
        folder: the folder from which adapters may be loaded, with its subfolders.
        name: the new adapter's name.
        path: absolute, or relative to `folder`.

    Raises:
        BadRequest: the name has other characters than letters, digits and `._/-`; or the path leads out of the folder,
            perhaps by symbolic links.
        NotFound: there is no such file.
    """
    try:
        msgspec.convert(name, AdapterName)
    except msgspec.ValidationError:
        raise BadRequest("lora_name may have 128 letters, digits, dots, dashes, slashes and underscores") from None
    root = Path(folder).expanduser().resolve()
    try:
        # A client must not learn from the answer which files exist elsewhere on this machine.
        file = (root / path).resolve()
        if not file.is_relative_to(root):
            raise BadRequest("lora_path must be a file in the folder from which adapters may be loaded")
        # Limit the path's length, since it travels with each heartbeat: repeated "./" would make it arbitrarily long.
        exists = len(path) <= MAX_PATH_CHARACTERS and file.is_file()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise NotFound(f"Loading lora {name} failed: No adapter found for that lora_path")
    return AdapterFile(file, path)
