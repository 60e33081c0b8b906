"""Maven Central -> cache -> a directory with Apache Pulsar's server in it, for `tests/pulsar_server.py`."""

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "4.0.6"
ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
ARCHIVE = f"pulsar-server-distribution-{VERSION}-bin.tar.gz"
FOLDER = f"apache-pulsar-{VERSION}"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
JAVA_MISSING = "Pulsar needs Java 17 or later, and there is none here: apt-get install openjdk-17-jre-headless"
MAVEN_MISSING = "the Pulsar server comes through Maven, which is not here: apt-get install maven"
DOWNLOAD_TIMEOUT = 1800.0


class PulsarMissing(Exception):
    """The broker can't be run here; the sentence names the command that helps."""


def distribution() -> Path:
    """Where the unpacked server is; obtained first where the cache has none. Safe for several processes at once.

    Raises:
        PulsarMissing: Java or Maven is not installed, or Maven could not get the server.
    """
    if shutil.which("java") is None:
        raise PulsarMissing(JAVA_MISSING)
    cache = Path(os.environ.get("TOKENGRID_CACHE") or Path.home() / ".cache" / "tokengrid")
    home = cache / FOLDER
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / "lock"):
            if not home.is_dir():
                _unpack(_archive(cache), home)
    return home


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _archive(cache: Path) -> Path:
    archive = cache / ARCHIVE
    if not archive.is_file():
        maven = shutil.which("mvn")
        if maven is None:
            raise PulsarMissing(MAVEN_MISSING)
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            arguments = [maven, "--batch-mode", "--quiet", COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={fresh}"]
            answer = subprocess.run(arguments, cwd=fresh, capture_output=True, timeout=DOWNLOAD_TIMEOUT, check=False)
            if answer.returncode != 0:
                said = answer.stdout.decode(errors="replace")[-2000:]
                raise PulsarMissing(f"Maven could not get {ARTIFACT}; try `mvn {COPY} -Dartifact={ARTIFACT}`\n{said}")
            (Path(fresh) / ARCHIVE).replace(archive)
    return archive


def _unpack(archive: Path, home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as fresh:
        with tarfile.open(archive) as tar:
            tar.extractall(fresh, filter="data")
        (Path(fresh) / FOLDER).rename(home)
    archive.unlink()
