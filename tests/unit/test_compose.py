"""docker-compose.yaml: no test runs it, so its YAML, its commands and its files are held against the code."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text("utf-8"))
PLAIN = {name: service for name, service in COMPOSE["services"].items() if "profiles" not in service}
OURS = {name: service for name, service in PLAIN.items() if name != "pulsar"}
MONITORING = {name: service for name, service in COMPOSE["services"].items() if name not in PLAIN}
PROMETHEUS: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text("utf-8"))


def test_one_service_a_process() -> None:
    assert set(OURS) == {"gateway", "text-completion", "prompt", "agent", "jobs"}
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
    if name in OURS:
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


def test_a_profile_has_prometheus_and_grafana_on_loopback() -> None:
    assert set(MONITORING) == {"prometheus", "grafana"}
    for service in MONITORING.values():
        assert service["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        named = [volume.partition(":")[0] for volume in service["volumes"]]
        assert all((ROOT / name).is_dir() if name.startswith("./") else name in COMPOSE["volumes"] for name in named)


def test_prometheus_asks_every_process_of_ours_where_it_answers() -> None:
    asked = {
        name: found["port"]
        for job in PROMETHEUS["scrape_configs"]
        for found in job["dns_sd_configs"]
        for name in found["names"]
    }
    assert set(asked) == set(OURS)
    for name, port in asked.items():
        command = OURS[name]["command"]
        assert command[command.index("--port" if name == "gateway" else "--metrics-port") + 1] == str(port)
    # The alert of a target that is down knows ours by the job.
    assert all(re.fullmatch(".*tokengrid.*", job["job_name"]) for job in PROMETHEUS["scrape_configs"])
    assert [(ROOT / "deploy/prometheus" / file).is_file() for file in PROMETHEUS["rule_files"]] == [True]


def test_prometheus_reads_its_file() -> None:
    if (command := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool: `apt-get install prometheus` on Debian")
    asked = [command, "check", "config", str(ROOT / "deploy/prometheus/prometheus.yaml")]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_the_dashboards_and_prometheus() -> None:
    mounted = dict(volume.split(":")[1::-1] for volume in MONITORING["grafana"]["volumes"])
    provisioning = ROOT / mounted["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/tokengrid.yaml").read_text("utf-8"))["providers"]
    assert list((ROOT / mounted[provider["options"]["path"]]).glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text("utf-8"))["datasources"]
    port = MONITORING["prometheus"]["ports"][0].rpartition(":")[2]
    assert (source["type"], source["url"]) == ("prometheus", f"http://prometheus:{port}")
