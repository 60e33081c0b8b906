"""A folder in which a page's blocks run as they are written: the repository's files, our commands, and a free port.

Three things differ from a reader's machine. Port 8888 is a free one. `make` sets nothing up, since tests run in what
was set up. The terminal has no colours.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tty
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

from tests.docs.page import ROOT
from tests.docs.servers import Servers
from tests.free_port import free_port
from tests.missing import DEFAULT_PORT

PORT = str(DEFAULT_PORT)
COMMAND_SECONDS = 60.0
_SERVE = """#!/bin/sh
# Serves on the port that the page's commands ask.
case " $* " in
  *" --check "*|*" --port "*) exec {real} "$@" ;;
  *) exec {real} "$@" --port "$DOCS_PORT" ;;
esac
"""
_MAKE = """#!/bin/sh
exec {real} --no-print-directory -o .venv/ready -o .venv/server -o .venv/demo "$@"
"""


_NOT_PASSED_ON = ("TOKENGRID_", "TRUSTGRAPH_", "MAKE", "MFLAGS", "ARGS")
"""Variables by which a `make test` around this run would speak to a page's own `make`."""


class Workshop:
    """The folder, and the server that the page has started last."""

    def __init__(self, folder: Path, servers: Servers, extra: Mapping[str, str]) -> None:
        self._folder = folder
        self._servers = servers
        self._extra = dict(extra)
        self.port: str | None = None
        for entry in ROOT.iterdir():
            if entry.is_file():
                shutil.copy2(entry, folder)  # not a link, which a page's `>` would write through
            elif entry.name not in {".venv", ".git"}:
                (folder / entry.name).symlink_to(entry)
        self._install()

    async def run(self, command: str) -> tuple[int | None, str]:
        """The exit code, and all that a terminal shows."""
        terminal, end = os.openpty()
        tty.setraw(end)
        with FileIO(terminal) as shown:
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", self.local(command), cwd=self._folder, env=self._environment(self.port),
                stdin=asyncio.subprocess.DEVNULL, stdout=end, stderr=end, start_new_session=True,
            )  # fmt: skip
            os.close(end)
            reading = asyncio.create_task(asyncio.to_thread(_read_terminal, shown))
            try:
                await asyncio.wait_for(process.wait(), COMMAND_SECONDS)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                text = await reading
        return process.returncode, self.public(text)

    async def serve(self, command: str) -> str:
        """The line with which a server says that it is ready. Later commands ask this server."""
        config = self._folder / "tokengrid.toml"
        key = command + (config.read_text("utf-8") if config.name in command and "/" not in command else "")
        port = str(free_port())
        server = await self._servers.get(key, int(port), self.local(command), self._folder, self._environment(port))
        self.port = str(server.port)
        return self.public(server.ready)

    def write(self, name: str, text: str) -> Path:
        """Put a file into the folder."""
        file = self._folder / name
        file.unlink(missing_ok=True)
        file.write_text(text, "utf-8")
        return file

    def public(self, text: str) -> str:
        """Text as a reader would see it: of the default port, and without this folder."""
        if self.port is not None:
            text = text.replace(f" -u http://127.0.0.1:{self.port}/", "").replace(self.port, PORT)
        return text.replace(f"{self._folder}/", "")

    def local(self, code: str) -> str:
        """Code that asks our server where it names the default port."""
        return code if self.port is None else code.replace(f":{PORT}", f":{self.port}")

    def _environment(self, port: str | None) -> dict[str, str]:
        own = {name: text for name, text in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        own |= {
            "PATH": f"{self._folder}/.venv/bin:{os.environ['PATH']}",
            "TERM": "dumb",
        }
        if port is not None:
            own |= {"DOCS_PORT": port}
        if self.port is not None:
            own |= {"TOKENGRID_URL": f"http://localhost:{self.port}/"}
        return own | self._extra

    def _install(self) -> None:
        real = Path(sys.prefix)
        bin_folder = self._folder / ".venv" / "bin"
        bin_folder.mkdir(parents=True)
        for entry in real.iterdir():
            if entry.name != "bin":
                (bin_folder.parent / entry.name).symlink_to(entry)
        for entry in (real / "bin").iterdir():
            if entry.name != "tg-serve":
                (bin_folder / entry.name).symlink_to(entry)
        for name, script, path in (
            ("tg-serve", _SERVE, str(real / "bin" / "tg-serve")),
            ("make", _MAKE, shutil.which("make") or "make"),
        ):
            (bin_folder / name).write_text(script.format(real=shlex.quote(path)))
            (bin_folder / name).chmod(0o755)


def _read_terminal(terminal: FileIO) -> str:
    """All that is written to a terminal; the kernel reports an error when everybody who could write has left."""
    read = bytearray()
    with contextlib.suppress(OSError):
        while data := terminal.read(65536):
            read += data
    return read.decode()
