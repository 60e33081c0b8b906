"""deploy/systemd: the commands are ones that we understand, and systemd reads the units."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tg_base.config import GatewayConfig
from tg_serve.command import serve

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "systemd"
UNITS = {file.name: file.read_text("utf-8") for file in sorted(FOLDER.glob("*.service"))}
CLOSING_SECONDS = 15
"""More than a process needs after its drain: Pulsar's client takes about five."""


def settings(unit: str) -> list[tuple[str, str]]:
    return [(name, value) for name, separator, value in (line.partition("=") for line in UNITS[unit].splitlines())
            if separator and not name.startswith("#")]  # fmt: skip


def find(unit: str, name: str) -> list[str]:
    return [value for each, value in settings(unit) if each == name]


def variables(unit: str, instance: str) -> dict[str, str]:
    pairs = [pair.replace("%i", instance).partition("=") for line in find(unit, "Environment") for pair in line.split()]
    return {name: value for name, _, value in pairs}


def expand(unit: str, instance: str) -> list[str]:
    """The command as systemd starts it without files of variables."""
    (command,) = find(unit, "ExecStart")
    return [re.sub(r"\$\{(\w+)\}", lambda found: variables(unit, instance)[found[1]], word) for word in command.split()]


@pytest.mark.parametrize(
    ("unit", "instance", "workers"),
    [
        ("tokengrid-gateway.service", "gateway", 2),
        ("tokengrid@.service", "text-completion", None),
        ("tokengrid@.service", "prompt", None),
        ("tokengrid@.service", "agent", None),
        ("tokengrid@.service", "jobs", None),
        ("tokengrid@.service", "usage", None),
    ],
)
def test_the_command_is_one_that_we_understand(unit: str, instance: str, workers: int | None) -> None:
    program, *options = expand(unit, instance)
    assert program == "/opt/tokengrid/bin/tg-serve"
    asked = serve.make_context("tg-serve", options).params
    assert (asked["only"], asked["workers"], str(asked["config"])) == (
        (instance,),
        workers,
        "/etc/tokengrid/tokengrid.toml",
    )
    assert asked["metrics_port"] is not None


@pytest.mark.parametrize("unit", UNITS)
def test_a_stop_lets_it_drain(unit: str) -> None:
    (seconds,) = find(unit, "TimeoutStopSec")
    assert float(seconds) >= GatewayConfig().drain + CLOSING_SECONDS
    # SIGTERM, which is systemd's own, to the process that drains its workers.
    assert (find(unit, "KillMode"), find(unit, "KillSignal")) == (["mixed"], [])


def test_the_page_says_how_to_keep_usage_where_its_unit_may_write() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    (database,) = re.findall(r'database = "([^"]+)"', page)
    (state,) = find("tokengrid@.service", "StateDirectory")
    assert Path(database).parent == Path("/var/lib", state.replace("%i", "usage"))
    named = {name for unit in UNITS for name in variables(unit, "a")}
    assert set(re.findall(r"\b[A-Z]+_PORT\b|\bPART\b|\bCONFIG\b|\bWORKERS\b", page)) <= named


def analyze(unit: str, *asked: str) -> None:
    if (command := shutil.which("systemd-analyze")) is None:
        pytest.skip("there is no systemd-analyze: it belongs to systemd")
    done = subprocess.run([command, *asked], capture_output=True, text=True, check=False)
    # It may have something to say about units of this machine, too.
    assert done.returncode == 0, done.stdout + done.stderr
    assert unit not in done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_reads_the_units_and_finds_them_closed(unit: str, tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("tg-serve"))
    (tmp_path / unit).write_text(UNITS[unit].replace("/opt/tokengrid/bin/tg-serve", program), "utf-8")
    analyze(unit, "verify", "--man=no", str(tmp_path / unit))
    # Tenths of systemd's scale from 0 to 10, which is a service without any protection.
    analyze(unit, "security", "--offline=true", "--no-pager", "--threshold=25", str(tmp_path / unit))
