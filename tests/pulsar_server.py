"""A private Apache Pulsar on free ports: `python -m tests.pulsar_server`, or `with PulsarServer() as server`.

For tests, benchmarks and a developer's own machine; it listens on loopback only and keeps nothing after its end.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.free_port import free_port
from tests.pulsar_distribution import distribution

TENANT = "tg"
NAMESPACES = ("flow", "request", "response", "notify")
READY_TIMEOUT = 180.0
STOP_TIMEOUT = 15.0
MEMORY = "-Xms256m -Xmx512m -XX:MaxDirectMemorySize=512m"
QUICK_START = "-XX:TieredStopAtLevel=1"
"""For a broker with little to do: without Java's second compiler it starts with 10 s of CPU time instead of 16."""

SETTINGS = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerNewEntriesCheckDelayInMillis": "0",
    "numIOThreads": "2",
    "numHttpServerThreads": "4",
    "webSocketServiceEnabled": "false",
    "brokerShutdownTimeoutMs": "5000",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "managedLedgerCacheSizeMB": "64",
    "forceDeleteNamespaceAllowed": "true",
}
MAX_STARTS = 5
MAX_INVALIDATED_LOCKS = 50
"""A broker that starts well invalidates a few of its locks."""
# The broker dies with whoever started it, even by SIGKILL: the watcher reads a pipe that ends with its writer.
SHELL = """
exec 3<&0
"$@" </dev/null 3<&- &
broker=$!
{ cat <&3 >/dev/null; kill -KILL $broker; } 2>/dev/null &
echo $broker >"$PULSAR_PID_FILE.new"; mv "$PULSAR_PID_FILE.new" "$PULSAR_PID_FILE"
wait $broker
"""


class PulsarServer:
    """One broker. `start` after `kill` or `stop` brings the same one back: same ports, same data.

    Args:
        settings: beyond those of a plain broker, for instance what `tests/broker_security.py` asks for.
        admin_token: what the admin API wants to see, where it does.
        java_options: further ones, such as `QUICK_START`.
    """

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, admin_token: str | None = None, java_options: str = ""
    ) -> None:
        self._home = distribution()
        self._settings = {**SETTINGS, **(settings or {})}
        self._admin_token = admin_token
        self._memory = f"{MEMORY} {java_options}"
        self._data = Path(tempfile.mkdtemp(prefix="tokengrid-pulsar-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._tls_port, self._admin_port, self._bookie_port = (free_port() for _ in range(4))

    @property
    def service_url(self) -> str:
        """What a client connects to."""
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def tls_url(self) -> str:
        """The same over TLS, where the settings hold a certificate."""
        return f"pulsar+ssl://127.0.0.1:{self._tls_port}"

    @property
    def admin_url(self) -> str:
        """Root of the admin REST API."""
        return f"http://127.0.0.1:{self._admin_port}"

    @property
    def pid(self) -> int:
        """The broker's own process, for instance to read its CPU time."""
        return int((self._data / "pid").read_text())

    @property
    def running(self) -> bool:
        """Whether it was started, and neither killed nor stopped since."""
        return self._process is not None

    @property
    def log(self) -> Path:
        """What the broker said."""
        return self._data / "broker.log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Return once clients are served and the tenant with its namespaces is there."""
        for _ in range(MAX_STARTS):
            begin = self.log.stat().st_size if self.log.exists() else 0
            self._start_once()
            if not self._fights_for_a_lock(begin):
                self._create_namespaces()
                return
            self.kill()
        raise RuntimeError(f"{MAX_STARTS} times the broker invalidated its own locks without end")

    def _fights_for_a_lock(self, begin: int) -> bool:
        """Whether it has fallen into a loop, as Pulsar 4.0.6 did after two of eight kills.

        The new broker deletes the bookie's entry of the dead one. If it hears of that too late, it takes the deletion
        for one of its new entry, deletes that, and so on, thousands of times a second, until it is killed.

        Args:
            begin: bytes of the log before this start.
        """
        with self.log.open("rb") as log:
            log.seek(begin)
            return log.read().count(b"was invalidated. state Valid") > MAX_INVALIDATED_LOCKS

    def _start_once(self) -> None:
        (self._data / "pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", SHELL, "broker", *self._command()],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_ready(self._process)

    def kill(self) -> None:
        """End the broker at once, as a power switch would."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def stop(self) -> None:
        """End the broker in good order, or at once where that takes too long."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.kill(self.pid, signal.SIGTERM)
                self._process.wait(STOP_TIMEOUT)
        self.kill()

    def close(self) -> None:
        """End the broker and delete its data."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def _command(self) -> list[str]:
        data = self._data
        return [
            str(self._home / "bin" / "pulsar"), "standalone", "--no-functions-worker", "--no-stream-storage",
            "--metadata-dir", str(data / "metadata"), "--bookkeeper-dir", str(data / "bookkeeper"),
            "--bookkeeper-port", str(self._bookie_port), "--config", str(self._configuration()),
        ]  # fmt: skip

    def _configuration(self) -> Path:
        ports = {"brokerServicePort": str(self._port), "webServicePort": str(self._admin_port)}
        if "tlsKeyStore" in self._settings:
            ports["brokerServicePortTls"] = str(self._tls_port)
        settings = {**self._settings, **ports}
        path = self._data / "standalone.conf"
        lines = (self._home / "conf" / "standalone.conf").read_text("utf-8").splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in settings]
        path.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items()), ""]), "utf-8")
        return path

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PULSAR_MEM": self._memory,
            "PULSAR_GC": "-XX:+UseSerialGC",
            "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=error:stderr",
            "PULSAR_LOG_DIR": str(self._data / "logs"),
            "PULSAR_STANDALONE_CONF": str(self._data / "standalone.conf"),
            "PULSAR_PID_FILE": str(self._data / "pid"),
        }

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended while it started:\n{self._said()}")
            if self._admin("GET", "brokers/health") == 200:
                return
            time.sleep(0.1)
        raise RuntimeError(f"the broker is not ready after {READY_TIMEOUT} s:\n{self._said()}")

    def _said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")[-4000:]

    def _create_namespaces(self) -> None:
        self._create(f"tenants/{TENANT}", {"adminRoles": [], "allowedClusters": ["standalone"]})
        for name in NAMESPACES:
            self._create(f"namespaces/{TENANT}/{name}", {})

    def _create(self, path: str, body: object) -> None:
        end = time.monotonic() + READY_TIMEOUT
        # A broker that is well may have a namespace's parent, made just before, not yet in every cache: 404 or 412.
        while (status := self._admin("PUT", path, body)) not in {200, 204, 409}:
            if time.monotonic() > end:
                raise RuntimeError(f"the broker refused to create {path}: status {status}\n{self._said()}")
            time.sleep(0.1)

    def _admin(self, method: str, path: str, body: object = None) -> int | None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.admin_url}/admin/v2/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if self._admin_token is not None:
            request.add_header("Authorization", f"Bearer {self._admin_token}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None


def main() -> None:
    """Run a broker until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), PulsarServer() as server:
        print(server.service_url, flush=True)
        print(f"admin {server.admin_url}, pid {server.pid}, log {server.log}", file=sys.stderr, flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
