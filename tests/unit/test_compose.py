"""docker-compose.yaml: no test runs it, so its YAML, its commands and its files are held against the code."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text("utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "pulsar"}


def test_one_service_a_process() -> None:
    assert set(OURS) == {"gateway", "text-completion", "prompt", "agent"}
    assert COMPOSE["services"]["pulsar"]["image"].startswith("apachepulsar/pulsar:4.")


@pytest.mark.parametrize("name", OURS)
def test_the_command_is_one_that_we_understand(name: str) -> None:
    from tg_serve.command import serve  # noqa: PLC0415 - the command line's own parser

    command = OURS[name]["command"]
    assert command[0] == "tg-serve"
    context = serve.make_context("tg-serve", command[1:], resilient_parsing=False)
    assert context.params["only"] == (name,)
    assert context.params["bus"] == "pulsar://pulsar:6650"


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_everything_is_health_checked_and_waits_for_the_broker(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["healthcheck"]["test"][0] == "CMD"
    if name != "pulsar":
        assert service["depends_on"]["pulsar"]["condition"] == "service_healthy"
        assert service["env_file"] == [{"path": ".env", "required": False}]


def test_the_broker_reads_its_settings() -> None:
    """Pulsar's image has no entry point: `bin/pulsar` alone ignores the variables `PULSAR_PREFIX_...`."""
    pulsar = COMPOSE["services"]["pulsar"]
    assert any(name.startswith("PULSAR_PREFIX_") for name in pulsar["environment"])
    shell, _, line = pulsar["command"]
    assert shell == "bash"
    apply, _, start = line.partition(" && exec ")
    assert apply == "bin/apply-config-from-env.py conf/standalone.conf"
    assert start.startswith("bin/pulsar standalone ")


def test_no_secret_and_every_mounted_file_is_there() -> None:
    text = (ROOT / "docker-compose.yaml").read_text("utf-8")
    assert "KEY=" not in text
    assert "TOKEN=" not in text
    for volume in {volume for service in OURS.values() for volume in service["volumes"]}:
        assert (ROOT / volume.partition(":")[0]).is_file()
