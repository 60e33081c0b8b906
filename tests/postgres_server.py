"""A PostgreSQL server of our own, in a directory of its own: stopped, killed and started again by tests."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.free_port import free_port
from tests.until import TICK_SECONDS

PASSWORD = "s3cr3t-of-the-database"
INSTALLED = "/usr/lib/postgresql/*/bin"
"""Where Debian has the server, which is not on its PATH."""


def find_program(name: str) -> str:
    """A program of PostgreSQL's; without it the test is skipped."""
    root = Path("/")
    found = shutil.which(name) or next(map(str, root.glob(f"{INSTALLED[1:]}/{name}")), None)
    if found is None:
        pytest.skip("there is no PostgreSQL: `apt-get install postgresql` on Debian")
    return found


class PostgresServer:
    """One server, which asks for a password.

    Attributes:
        url: its database, without the password.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self._folder = folder
        self._identity = identity
        self._port = free_port()
        self.url = f"postgresql://tg@127.0.0.1:{self._port}/postgres"

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """A server with an empty database, until the block is left."""
        folder = Path(tempfile.mkdtemp(prefix="tg-postgres-"))
        identity: dict[str, Any] = {}
        if os.getuid() == 0:
            # It refuses to run as root.
            owner = pwd.getpwnam("nobody")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        server = cls(folder, identity)
        try:
            server._create()
            server.start()
            yield server
        finally:
            server.kill()
            shutil.rmtree(folder)

    def start(self) -> None:
        """Return once it answers."""
        command = [
            *(find_program("postgres"), "-D", str(self._folder / "data"), "-p", str(self._port)),
            *("-h", "127.0.0.1", "-k", str(self._folder), "-c", "fsync=off"),
        ]
        # A killed server leaves it, and would be taken for one that runs.
        (state := self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._identity)
        while self._process.poll() is None:
            if state.exists() and state.read_text().rstrip().endswith("ready"):
                return
            time.sleep(TICK_SECONDS)
        raise AssertionError((self._folder / "log").read_text())

    def signal(self, number: signal.Signals) -> None:
        """To it and to the processes of its connections."""
        if self._process.poll() is None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for pid in (self._process.pid, *map(int, children)):
                # A connection may end meanwhile.
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill(self) -> None:
        """As a power failure would."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def _create(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [
            *(find_program("initdb"), "-D", str(self._folder / "data"), "-U", "tg", "--no-sync", "-E", "UTF8"),
            *("--auth", "scram-sha-256", "--pwfile", str(password), "--locale", "C"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._identity)
