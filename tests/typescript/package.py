"""`cli/ts` -> its npm package, packed by npm and installed in a folder of its own, as others would."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.npm_package import npm_or_skip
from tests.uv_command import ROOT

CLIENT: Final = ROOT / "cli" / "ts"
PROGRAM: Final = Path(__file__).with_name("ask.mjs")
PACK_SECONDS: Final = 60
FIRST_WITH_WEBSOCKET: Final = 22


def node_or_skip() -> tuple[str, tuple[str, ...]]:
    """Node's program, and the options with which it has a WebSocket."""
    node, _ = npm_or_skip("the TypeScript client")
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    major = int(version.strip().lstrip("v").partition(".")[0])
    return node, () if major >= FIRST_WITH_WEBSOCKET else ("--experimental-websocket",)


def pack_client(folder: Path) -> Path:
    """The archive that `npm pack` makes of it."""
    command = ["npm", "pack", str(CLIENT), "--pack-destination", str(folder), "--offline", "--silent"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PACK_SECONDS)
    return folder / done.stdout.strip()


def install_client(folder: Path) -> Path:
    """The program beside the installed package; its path."""
    target = folder / "node_modules" / "@tokengrid" / "client"
    target.parent.mkdir(parents=True)
    shutil.unpack_archive(pack_client(folder), folder / "packed", filter="data")
    shutil.move(folder / "packed" / "package", target)
    return Path(shutil.copy(PROGRAM, folder))
