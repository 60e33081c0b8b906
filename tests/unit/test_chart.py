"""deploy/helm: wrong values are refused by their path, and what the chart renders is what our code reads and answers.

Without helm, the values and the names in the templates are held against the code; with it, the rendered files are.
"""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession
from jsonschema_rs import Draft7Validator

from tests.free_port import free_port
from tg_base.config import SERVICES, Config, TextCompletionConfig, read_config
from tg_base.config.model import ModelConfig
from tg_flow.usage.usage_kind import UsageConfig
from tg_picker.extproc.pick_config import override_config, read_pick_config
from tg_schema import TEXT_COMPLETION
from tg_serve.command import serve
from tg_serve.launcher import inspect, launch
from tg_serve.options import ServeOptions
from tg_serve.pick import pick

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "tokengrid"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    **{file.stem: yaml.safe_load(file.read_text("utf-8")) for file in sorted((CHART / "ci").glob("*.yaml"))},
    "readme": yaml.safe_load(re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text("utf-8"), re.DOTALL)[0]),
}
TEMPLATES = "".join(file.read_text("utf-8") for file in sorted((CHART / "templates").iterdir()))
KUBERNETES = ("1.34.0", "1.36.0", "1.37.0")
OF_OTHERS = ("keda.sh/", "monitoring.coreos.com/")
MODEL = {"provider": "demo", "flows": {"default": {}}}


def find_faults(values: dict[str, Any]) -> list[str]:
    errors = Draft7Validator(SCHEMA).iter_errors(values)
    return sorted("/".join(["", *map(str, error.instance_path)]) for error in errors)


@pytest.mark.parametrize("values", [VALUES, *CASES.values()], ids=["values", *CASES])
def test_the_schema_takes_our_values(values: dict[str, Any]) -> None:
    assert find_faults(values) == []


def test_the_schema_has_every_value_and_every_field_of_a_model() -> None:
    assert set(VALUES) | {"config", "global"} == set(SCHEMA["properties"])
    model = SCHEMA["properties"]["models"]["additionalProperties"]["properties"]
    picked = re.findall(r'pick \.model ("[^\n]*") -', TEMPLATES)[0].replace('"', "").split()
    assert set(picked) == set(ModelConfig.__struct_fields__)
    assert set(picked) <= set(model)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"drainSeconds": "10"}, "/drainSeconds"),
        ({"bus": {"url": "memory://"}}, "/bus/url"),
        ({"bus": {"tokenSecret": {"name": "a"}}}, "/bus/tokenSecret"),
        ({"config": ["gateway"]}, "/config"),
        ({"config": {"bus": {}}}, "/config/bus"),
        ({"config": {"gateway": {"drain": 5}}}, "/config/gateway/drain"),
        ({"config": {"gateway": {"keys": [{"name": "a", "sha256": "b", "token": "c"}]}}},
         "/config/gateway/keys/0/token"),
        ({"models": {"GPT": MODEL}}, "/models"),
        ({"models": {"gpt": {**MODEL, "replicas": 0}}}, "/models/gpt/replicas"),
        ({"models": {"gpt": {**MODEL, "option": {}}}}, "/models/gpt"),
        ({"models": {"gpt": {"provider": "demo"}}}, "/models/gpt"),
        ({"models": {"gpt": {**MODEL, "secretEnv": {"OPENAI_API_KEY": "sk-"}}}},
         "/models/gpt/secretEnv/OPENAI_API_KEY"),
        ({"keda": {"minReplicas": 0}}, "/keda/minReplicas"),
        ({"gateway": {"service": {"port": "80"}}}, "/gateway/service/port"),
        ({"usage": {"replicas": 2}}, "/usage/replicas"),
        ({"usage": {"database": "postgresql://tg:secret@db/usage"}}, "/usage/database"),
        ({"networkPolicy": {"busPorts": ["6650"]}}, "/networkPolicy/busPorts/0"),
        ({"gatewy": {}}, ""),
    ],
)  # fmt: skip
def test_the_schema_refuses_a_wrong_value_by_its_path(values: dict[str, Any], path: str) -> None:
    assert find_faults(values) == [path]


def test_the_templates_name_options_that_the_commands_have() -> None:
    known = {option for command in (serve, pick) for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r'"(--[a-z-]+)"', TEMPLATES))
    assert {"--only", "--metrics-port", "--listen", "--http"} <= named <= known


async def test_the_probes_ask_what_a_process_answers(tmp_path: Path) -> None:
    asked = re.findall(r'\(list "(/\w+)" (?:"(\w+)"|\(ternary "(\w+)" "(\w+)")', TEMPLATES)
    paths = {(path, port) for path, *ports in asked for port in ports if port}
    assert paths == {("/health", "http"), ("/ready", "http"), ("/live", "metrics"), ("/ready", "metrics"),
                     ("/health", "metrics")}  # fmt: skip
    file = tmp_path / "tokengrid.toml"
    file.write_text('models.m.provider = "demo"\nflows.default.text-completion.model = "m"\n')
    metrics = free_port()
    async with (
        launch(ServeOptions(file=file, port=0, metrics_port=metrics)) as (_, url),
        ClientSession() as http,
    ):
        for path, port in paths:
            base = f"http://127.0.0.1:{metrics}" if port == "metrics" else str(url).rstrip("/")
            async with http.get(base + path) as answer:
                assert answer.status == 200, (path, port)


def test_the_chart_has_our_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_subscription_is_that_of_our_processors() -> None:
    processor = (ROOT / "base/tg_base/server/processor.py").read_text("utf-8")
    assert 'group = f"tg-{self._service.spec.name}"' in processor
    assert f"subscription: tg-{TEXT_COMPLETION.name}\n" in TEMPLATES


@cache
def run_helm(values: str) -> subprocess.CompletedProcess[str]:
    if (command := shutil.which("helm")) is None:
        pytest.skip("there is no helm: https://helm.sh/docs/intro/install")
    asked = ("template", "tg", str(CHART), "--kube-version", "1.31.0", "-f", "-")
    return subprocess.run([command, *asked], input=values, capture_output=True, text=True, check=False)


def helm(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return run_helm(yaml.safe_dump(values))


class Rendered:
    """What the chart makes of values."""

    def __init__(self, values: dict[str, Any], folder: Path) -> None:
        done = helm(values)
        assert (done.returncode, done.stderr) == (0, "")
        self.made = [made for made in yaml.safe_load_all(done.stdout) if made is not None]
        self.folder = folder

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """What is of this kind, by name without the release's."""
        found = [made for made in self.made if made["kind"] == kind]
        return {made["metadata"]["name"].removeprefix("tg-tokengrid").lstrip("-"): made for made in found}

    @property
    def containers(self) -> dict[str, dict[str, Any]]:
        pods = {name: made["spec"]["template"]["spec"] for name, made in self.of_kind("Deployment").items()}
        return {name: pod["containers"][0] for name, pod in pods.items()}

    def write(self, key: str) -> Path:
        (self.folder / key).write_text(self.of_kind("ConfigMap")[""]["data"][key], "utf-8")
        return self.folder / key

    def file_of(self, workload: str) -> Path:
        """The configuration that a process of this Deployment is started with."""
        pod = self.of_kind("Deployment")[workload]["spec"]["template"]["spec"]
        volume = next(volume for volume in pod["volumes"] if volume["name"] == "config")
        mount = next(mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "config")
        (item,) = volume["configMap"]["items"]
        command = pod["containers"][0]["command"]
        assert command[command.index("--config") + 1] == f"{mount['mountPath']}/{item['path']}"
        return self.write(item["key"])


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Rendered:
    return Rendered(CASES[request.param], tmp_path)


def read(file: Path) -> Config:
    return read_config(file, services=(*SERVICES, UsageConfig))


def list_seconds(process: dict[str, Any]) -> Iterator[float]:
    for hook in process.get("lifecycle", {}).values():
        program, seconds = hook["exec"]["command"]
        assert program == "sleep"
        yield float(seconds)


def test_each_process_starts_with_a_file_that_it_reads(rendered: Rendered) -> None:
    for name, container in rendered.containers.items():
        program, *options = container["command"]
        file = rendered.file_of(name)
        if program == "tg-pick":
            asked = pick.make_context(program, options).params
            config = override_config(read_pick_config(file), asked["listen"], asked["http"], asked["bus"])
            ports = {"grpc": config.listen, "metrics": config.http}
            opened = {port: int(address.rpartition(":")[2]) for port, address in ports.items()}
        else:
            asked = serve.make_context(program, options).params
            part = "text-completion" if name.startswith("model-") else name
            assert asked["only"] == (part,)
            assert part in {"gateway", "jobs"} or any(part in services for services in read(file).flows.values())
            opened = {"metrics": asked["metrics_port"], **({"http": asked["port"]} if part == "gateway" else {})}
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == opened
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= set(opened)


async def test_a_check_finds_nothing(rendered: Rendered, monkeypatch: pytest.MonkeyPatch) -> None:
    for container in rendered.containers.values():
        for variable in container.get("env", ()):
            monkeypatch.setenv(variable["name"], "sk-loopback")
    file = rendered.write("tokengrid.toml")
    # No broker here, nor what a pod has mounted.
    text = re.sub(r'"/(?:run/secrets|var/lib)/[^"]*"', f'"{file}"', file.read_text("utf-8"))
    file.write_text(text.replace(f'database = "{file}"', f'database = "{file}.db"'), "utf-8")
    _, findings = await inspect(ServeOptions(file=file, bus="memory://", host="127.0.0.1"))
    assert findings == []


def test_each_model_has_processors_of_its_own(rendered: Rendered) -> None:
    shared = read(rendered.write("tokengrid.toml"))
    queues: dict[str | None, set[str]] = {}
    for route in shared.routes(TEXT_COMPLETION.name):
        queues.setdefault(route.model, set()).add(route.request)
    scaled = rendered.of_kind("ScaledObject")
    for model, table in shared.models.items():
        own = read(rendered.file_of(f"model-{model}"))
        assert (dict(own.models), own.bus, own.traces) == ({model: table}, shared.bus, shared.traces)
        served = {route.request for route in own.routes(TEXT_COMPLETION.name)}
        assert served
        assert served <= queues[model]
        assert all(service.model == model for service in own.bound(TextCompletionConfig).values())
        if scaled:
            triggers = scaled[f"model-{model}"]["spec"]["triggers"]
            assert {trigger["metadata"]["topic"] for trigger in triggers} == served
            assert "replicas" not in rendered.of_kind("Deployment")[f"model-{model}"]["spec"]
    assert len(shared.models) == sum(name.startswith("model-") for name in rendered.containers)


def test_a_pod_outlives_its_drain(rendered: Rendered) -> None:
    for name, made in rendered.of_kind("Deployment").items():
        pod = made["spec"]["template"]["spec"]
        drain = 30 if name == "picker" else read(rendered.file_of(name)).gateway.drain
        assert pod["terminationGracePeriodSeconds"] >= drain + sum(list_seconds(pod["containers"][0])) + 10


def test_a_pod_may_do_nothing_but_serve(rendered: Rendered) -> None:
    for made in rendered.of_kind("Deployment").values():
        pod = made["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        limits = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == limits
        assert container["resources"]["limits"]["memory"]
        # A variable with a secret's name is that of a Secret.
        assert all("valueFrom" in variable for variable in container.get("env", ()))


def test_labels_select_one_component_each(rendered: Rendered) -> None:
    deployed = rendered.of_kind("Deployment")
    labels = {name: made["spec"]["template"]["metadata"]["labels"] for name, made in deployed.items()}

    def find(selector: dict[str, str]) -> set[str]:
        return {name for name, each in labels.items() if selector.items() <= each.items()}

    for name, made in deployed.items():
        assert find(made["spec"]["selector"]["matchLabels"]) == {name}
    for name, made in rendered.of_kind("PodDisruptionBudget").items():
        assert find(made["spec"]["selector"]["matchLabels"]) == {name}
    for name, made in rendered.of_kind("Service").items():
        assert find(made["spec"]["selector"]) == (set(labels) if name == "metrics" else {name})
        for port in made["spec"]["ports"]:
            assert any(port["targetPort"] == each["name"] for pod in find(made["spec"]["selector"])
                       for each in rendered.containers[pod]["ports"])  # fmt: skip
    for made in (*rendered.of_kind("ScaledObject").values(), *rendered.of_kind("HorizontalPodAutoscaler").values()):
        assert made["spec"]["scaleTargetRef"]["name"] == made["metadata"]["name"]


def test_the_defaults_are_a_gateway_and_the_demo_model(tmp_path: Path) -> None:
    rendered = Rendered({}, tmp_path)
    assert set(rendered.containers) == {"gateway", "model-tinydemo"}
    kinds = {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"}
    assert {made["kind"] for made in rendered.made} == kinds
    config = read(rendered.write("tokengrid.toml"))
    assert (config.bus.url, config.gateway.keys, config.gateway.auth) == ("pulsar://pulsar-proxy:6650", (), "auto")


def test_sums_in_postgresql_need_no_volume(tmp_path: Path) -> None:
    url = "postgresql://tg@db.example:5432/usage?sslmode=require"
    secret = {"PGPASSWORD": {"name": "postgres", "key": "password"}}
    rendered = Rendered({"usage": {"enabled": True, "database": url, "secretEnv": secret}}, tmp_path)
    (bound,) = read(rendered.write("tokengrid.toml")).bound(UsageConfig).values()
    assert bound.database == url
    assert not rendered.of_kind("PersistentVolumeClaim")
    container = rendered.containers["usage"]
    assert "data" not in {mount["name"] for mount in container["volumeMounts"]}
    (password,) = (each for each in container["env"] if each["name"] == "PGPASSWORD")
    assert password["valueFrom"]["secretKeyRef"] == secret["PGPASSWORD"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_what_is_rendered(rendered: Rendered, version: str) -> None:
    if (command := shutil.which("kubernetes-validate")) is None:
        pytest.skip("there is no kubernetes-validate: `pip install kubernetes-validate`, 108 MB")
    # Its schemas are Kubernetes' own, without what others define.
    known = [made for made in rendered.made if not made["apiVersion"].startswith(OF_OTHERS)]
    (rendered.folder / "made.yaml").write_text(yaml.safe_dump_all(known), "utf-8")
    asked = (command, "--strict", "-k", version, str(rendered.folder / "made.yaml"))
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == len(known)


def test_everything_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    rendered = Rendered(CASES["full-values"], tmp_path)
    assert set(rendered.containers) == {
        "gateway",
        "prompt",
        "agent",
        "jobs",
        "usage",
        "picker",
        "model-demo",
        "model-gpt",
    }
    usage = rendered.of_kind("Deployment")["usage"]["spec"]
    assert (usage["replicas"], usage["strategy"]) == (1, {"type": "Recreate"})
    (claim,) = (volume["persistentVolumeClaim"] for volume in usage["template"]["spec"]["volumes"]
                if volume["name"] == "data")  # fmt: skip
    assert claim["claimName"] in {made["metadata"]["name"] for made in rendered.made
                                  if made["kind"] == "PersistentVolumeClaim"}  # fmt: skip
    config = read(rendered.write("tokengrid.toml"))
    (bound,) = config.bound(UsageConfig).values()
    (mounted,) = (mount["mountPath"] for mount in rendered.containers["usage"]["volumeMounts"]
                  if mount["name"] == "data")  # fmt: skip
    assert str(bound.database).startswith(f"{mounted}/")
    for file in (config.bus.options.token_file, config.bus.options.trust_certs):
        for container in rendered.containers.values():
            assert any(str(file).startswith(f"{mount['mountPath']}/") for mount in container["volumeMounts"])
    assert "sk-" not in json.dumps(rendered.of_kind("ConfigMap"))


def test_names_and_texts_arrive_as_they_are(tmp_path: Path) -> None:
    text = 'A "quote", a \\ and <tags> & {{ braces }},\nünïcode\u2028and \x01.'
    aliases, options = {"gpt 4": "m", "ä.b": "m"}, {"tries": 3, "clocks": {"idle": 0.5}, "capacity": 1_000_000}
    values = {
        "config": {"prompts": {"system": text}, "gateway": {"aliases": aliases}},
        "models": {"m": {**MODEL, "options": options}},
    }
    config = read(Rendered(values, tmp_path).write("tokengrid.toml"))
    assert config.prompts.system == text
    assert (config.gateway.aliases, config.models["m"].options) == (aliases, options)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"models": {"a": MODEL, "b": MODEL}}, "models.a.flows and models.b.flows both have default"),
        ({"config": {"flows": {"default": {"agent": {}}}}}, "config.flows.default binds agent: set agent.enabled"),
        ({"config": "[gateway]\ndrain = 30\n"}, "config has gateway.drain = 30, and drainSeconds is 10"),
        ({"drainSeconds": 30, "config": "[gateway]\n"}, "config has gateway.drain = 10, and drainSeconds is 30"),
        ({"bus": {"url": None}}, "bus.url names the broker: set it"),
        ({"gateway": {"replicas": "two"}}, "/gateway/replicas"),
    ],
)
def test_what_would_not_serve_is_refused(values: dict[str, Any], sentence: str) -> None:
    done = helm(values)
    assert done.returncode != 0
    assert sentence in done.stderr
