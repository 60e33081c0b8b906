"""Resource files: what the proposal's example means, and the place and sentence of every error."""

from pathlib import Path
from random import Random

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scripts import crds
from tg_picker.pools.catalogue import Catalogue, Destination, FailurePolicy, Slo
from tg_picker.pools.catalogue_builder import build_catalogue, find_empty, parse_duration
from tg_picker.pools.resource import parse_resources, read_resources
from tg_picker.pools.yaml_document import parse_yaml
from tg_schema.errors import BadRequest

POOL = """
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata:
  name: assistant
spec:
  selector:
    matchLabels:
      app: vllm
  targetPorts:
  - number: 8000
"""
ROUTE = """
kind: LLMRoute
apiVersion: inference.x-k8s.io/v1alpha1
metadata:
  name: assistant
spec:
  parentRefs:
  - name: ai-gw
  backendRefs:
  - name: assistant
  adapter:
    name: sentiment
    priority: 100
    objectives:
    - type: OutputTokenLatency

      latency:
        value: 2s
        quantile:
          numerator: 99
    metrics:

      format: Prometheus
"""
OBJECTIVE = """
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceObjective
metadata: {name: batch}
spec:
  priority: -10
  poolRef: {group: inference.networking.k8s.io, name: assistant}
"""
REWRITE = """
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata:
  name: canary
spec:
  poolRef:
    group: inference.networking.k8s.io
    name: assistant
  rules:
  - matches:
    - model:
        type: Exact
        value: sentiment
    targets:
    - modelRewrite: sentiment-v1
      weight: 9
    - modelRewrite: sentiment-v2
      weight: 1
"""
MODEL = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: InferenceModel
metadata:
  name: food
spec:
  modelName: food-review
  criticality: Sheddable
  poolRef: {name: assistant}
  targetModels:
  - {name: food-review-3, weight: 100}
"""
FILE = Path("pools.yaml")


def catalogue(*documents: str) -> Catalogue:
    return build_catalogue(parse_resources("---".join(documents), FILE))


def models(found: Catalogue, asked: str) -> set[str]:
    """What servers are asked for, of many requests."""
    draw = Random(1)
    return {told.model for _ in range(200) if (told := found.resolve(asked, draw))}


def fault(*documents: str) -> str:
    with pytest.raises(BadRequest) as caught:
        catalogue(*documents)
    return caught.value.message


def test_the_example_of_the_proposal() -> None:
    slos = (Slo("OutputTokenLatency", 2.0, 0.99),)
    found = catalogue(POOL, ROUTE).resolve("sentiment", Random(0))
    assert found == Destination("assistant", "sentiment", "sentiment", 100, slos, "assistant")


POLICY = "    failurePolicy: {maxAttempts: 3, hedgingDelay: 500ms, maxWait: 1m}\n"


def test_a_route_may_say_what_becomes_of_its_failures() -> None:
    found = catalogue(POOL, ROUTE + POLICY).resolve("sentiment", Random(0))
    assert found is not None
    assert found.failure == FailurePolicy(3, 0.5, 60.0)


def test_all_kinds_in_one_file() -> None:
    found = catalogue(POOL, ROUTE, OBJECTIVE, REWRITE, MODEL)
    assert found.models == ("sentiment", "food-review")
    draw = Random(3)
    told = [found.resolve("sentiment", draw) for _ in range(1000)]
    models = [each.model for each in told if each]
    assert set(models) == {"sentiment-v1", "sentiment-v2"}
    assert 850 < models.count("sentiment-v1") < 950
    assert {each.adapter == each.model and each.priority == 100 for each in told if each} == {True}
    shed = found.resolve("food-review", draw)
    assert shed is not None
    assert (shed.model, shed.priority, shed.adapter, shed.route) == ("food-review-3", -1, None, "food")
    batch = found.resolve("sentiment", draw, objective="batch")
    assert batch is not None
    assert (batch.priority, batch.slos[0].seconds) == (-10, 2.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12.5ms", 0.0125), ("0.5ms", 0.0005), ("1.5m", 90), ("1h0.5s", 3600.5), ("1m30s", 90), ("500ms1s", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_the_first_version_of_a_model_called_its_criticality_default() -> None:
    found = catalogue(POOL, MODEL.replace("Sheddable", "Default")).resolve("food-review", Random(0))
    assert found is not None
    assert found.priority == 0


def test_models_that_no_route_names() -> None:
    assert catalogue(POOL, ROUTE).resolve("llama", Random(0)) is None
    found = catalogue(POOL)
    # Nothing says which models there are, so the servers are asked; where they tell theirs, another is unknown.
    assert found.resolve("llama", Random(0)) == Destination("assistant", "llama")
    assert found.resolve("other", Random(0), served={"assistant": {"llama"}}) is None
    assert found.resolve("llama", Random(0), served={"assistant": {"llama"}}) == Destination("assistant", "llama")
    assert found.resolve("lora", Random(0), pool="assistant", served={"assistant": {"llama"}}) == (
        Destination("assistant", "lora", "lora")
    )


def test_a_rule_without_matches_is_for_what_nothing_else_names() -> None:
    start, end = REWRITE.index("matches:"), REWRITE.index("targets:")
    others = REWRITE[:start] + REWRITE[end:]
    found = catalogue(POOL, others, MODEL)
    assert models(found, "whatever") == {"sentiment-v1", "sentiment-v2"}
    assert models(found, "food-review") == {"food-review-3"}
    known = found.resolve("llama", Random(0), served={"assistant": {"llama"}})
    assert known == Destination("assistant", "llama")
    # Its target may be rewritten as any other model.
    on = catalogue(POOL, MODEL, others.replace("sentiment-v1", "food-review"))
    assert models(on, "whatever") == {"food-review-3", "sentiment-v2"}


def test_rewrites_lead_on_and_a_canary_may_keep_its_name() -> None:
    on = REWRITE.replace("name: canary", "name: on").replace("value: sentiment", "value: sentiment-v1")
    on = on.replace("modelRewrite: sentiment-v1", "modelRewrite: last").replace(
        "-v2\n      weight: 1", "-v1\n      weight: 0"
    )
    draw = Random(1)
    seen = {catalogue(POOL, ROUTE, REWRITE, on).resolve("sentiment", draw).model for _ in range(99)}  # type: ignore[union-attr]
    assert seen == {"last", "sentiment-v2"}


def test_pools_by_weight() -> None:
    second = POOL.replace("name: assistant", "name: second")
    route = ROUTE.replace("  - name: assistant\n", "  - {name: assistant, weight: 0}\n  - {name: second, weight: 3}\n")
    found = catalogue(POOL, second, route)
    told = [found.resolve("sentiment", Random(seed)) for seed in range(50)]
    assert {each.pool for each in told if each} == {"second"}
    both = found.resolve("sentiment", Random(0), pool="assistant")
    assert both is not None
    assert both.pool == "assistant"


def test_a_list_and_what_kubectl_adds_are_read() -> None:
    item = POOL.strip().replace(
        "  name: assistant", "  name: assistant\n  uid: 8\n  resourceVersion: '9'\n  annotations:"
    )
    text = "apiVersion: v1\nkind: List\nitems:\n- " + item.replace("\n", "\n  ") + "\n  status: {parents: []}\n"
    assert catalogue(text).pools.keys() == {"assistant"}


def test_namespaces() -> None:
    other = POOL.replace("  name: assistant", "  name: assistant\n  namespace: ml")
    assert catalogue(POOL, other).pools.keys() == {"assistant", "ml/assistant"}
    route = ROUTE.replace("  - name: assistant\n", "  - {name: assistant, namespace: ml}\n")
    assert catalogue(other, route).cases["sentiment"].pools == (("ml/assistant", 1),)
    assert fault(other, ROUTE).endswith('there is no InferencePool assistant; did you mean "ml/assistant"?')


CIRCLE = REWRITE.replace("canary", "back").replace("sentiment-v1", "other").replace("sentiment", "circle")
CIRCLE = CIRCLE.replace("circle-v2", "sentiment").replace("value: circle", "value: sentiment-v2")
NUMBER = "  - number: 8000\n"
NINE = "".join(f"  - number: {at}\n" for at in range(1, 10))
SECOND = ROUTE.replace("  name: assistant\n", "  name: b\n", 1)


def pool(old: str, new: str) -> tuple[str]:
    return (POOL.replace(old, new),)


def route(old: str, new: str) -> tuple[str, str]:
    return POOL, ROUTE.replace(old, new)


def rewrite(old: str, new: str) -> tuple[str, str]:
    return POOL, REWRITE.replace(old, new)


TWICE = """\
    - type: OutputTokenLatency
      latency: {value: 1s, quantile: {numerator: 50}}
    - type: Out"""
FAULTS = [
    (pool("selector", "selctor"), 7, 3, 'unknown field "selctor" in spec; did you mean "selector"?'),
    (pool("InferencePool", "InferencePol"), 3, 1, 'unknown kind "InferencePol"; did you mean "InferencePool"?'),
    (pool("InferencePool", "Pod"), 3, 1, 'unknown kind "Pod"; known are LLMRoute, InferencePool, '),
    (pool("/v1", "/v1alpha2"), 2, 1, "apiVersion of InferencePool must be inference.networking.k8s.io/v1, not"),
    (pool("8000", "80000"), 11, 5, "spec.targetPorts.0.number must be a whole number <= 65535"),
    (pool("8000", "http"), 11, 5, "spec.targetPorts.0.number must be a whole number, not text"),
    (pool(NUMBER, NUMBER * 2), 12, 5, "port 8000 is repeated; keep one"),
    (pool(NUMBER, NUMBER + "  endpointPickerRef: {name: e}\n"), 12, 3, "needs the port of a Service; add it"),
    (pool(NUMBER, NINE), 10, 3, "targetPorts must have 1 to 8 elements"),
    (pool("      app: vllm\n", ""), 7, 3, "spec.selector needs the field matchLabels; add it"),
    (pool("\n      app: vllm", " {}"), 7, 3, "matchLabels is empty; name a label of the endpoints"),
    (pool("vllm", "1"), 9, 7, "spec.selector.matchLabels.app must be text, not a whole number"),
    (pool("  name: assistant", "  labels: {}"), 4, 1, "metadata needs the field name; add it"),
    (pool("app: vllm", "app: vllm\n      app: b"), 10, 7, '"app" is repeated, first in line 9; keep one'),
    ((POOL, POOL), 16, 3, "the InferencePool assistant is there twice, first in pools.yaml, line 2, column 1; rename"),
    ((ROUTE,), 10, 5, "there is no InferencePool assistant; add an InferencePool"),
    (route("- name: assistant", "- name: assistent"), 21, 5, 'no InferencePool assistent; did you mean "assistant"?'),
    ((POOL, ROUTE, SECOND), 46, 5, 'the model "sentiment" has a route already, the LLMRoute assistant in pools.yaml, '),
    (route("2s", "2 seconds"), 29, 9, "value must be a duration above 0 such as 2s, 500ms or 1m30s, not "),
    (route("2s", "0s"), 29, 9, 'value must be a duration above 0 such as 2s, 500ms or 1m30s, not "0s"'),
    (route("2s", "-1s"), 29, 9, 'value must be a duration above 0 such as 2s, 500ms or 1m30s, not "-1s"'),
    (route("2s", "0"), 29, 9, "latency.value must be text, not a whole number"),
    (route("2s", "-1"), 29, 9, "latency.value must be text, not a whole number"),
    (route("Prometheus", "StatsD"), 34, 7, 'spec.adapter.metrics.format must be one of "Prometheus"'),
    (
        (POOL, ROUTE + POLICY.replace("500ms", "0s")),
        35,
        37,
        'hedgingDelay must be a duration above 0 such as 2s, 500ms or 1m30s, not "0s"',
    ),
    ((POOL, ROUTE + POLICY.replace("1m", "-1s")), 35, 58, "maxWait must be a duration above 0 such as 2s, 500ms or "),
    (
        (POOL, ROUTE + POLICY.replace("3", "0")),
        35,
        21,
        "spec.adapter.failurePolicy.maxAttempts must be a whole number",
    ),
    ((POOL, ROUTE + POLICY.replace("maxWait", "wait")), 35, 58, 'unknown field "wait" in spec.adapter.failurePolicy'),
    (route("99", "100"), 31, 11, "numerator must be below the denominator, 100; no server can guarantee it for all"),
    (route("99", "0"), 31, 11, "spec.adapter.objectives.0.latency.quantile.numerator must be a whole number >= 1"),
    (route("OutputTokenLatency", "Latency"), 26, 7, 'must be one of "OutputTokenLatency", "TimeToFirstToken"'),
    (route("\n  - name: assistant", " []"), 20, 3, "backendRefs is empty; name an InferencePool"),
    (route("- name: assistant", "- {name: assistant, weight: 0}"), 20, 3, "all weights are 0, so nothing can be "),
    (rewrite("t: 9\n    - modelRewrite: sentiment-v2\n      weight: 1", "t: 0"), 26, 5, "all weights are 0"),
    (rewrite("9", "-9"), 28, 7, "spec.rules.0.targets.0.weight must be a whole number >= 0"),
    (rewrite("-v2", "-v1"), 29, 7, 'the target "sentiment-v1" is repeated; add the weights'),
    (
        route("\n  - name: assistant", "\n  - name: assistant\n  - name: assistant"),
        22,
        5,
        "the InferencePool assistant is ",
    ),
    (route("    - type: Out", TWICE), 28, 7, "OutputTokenLatency has an objective already; keep the one that matters"),
    ((POOL, REWRITE, REWRITE.replace("canary", "b")), 44, 9, 'the model "sentiment" is rewritten already, by the I'),
    ((POOL, REWRITE, CIRCLE), 25, 9, "rewrites form a circle: sentiment -> sentiment-v2 -> sentiment; remove one"),
    ((POOL, MODEL.replace("100", "0")), 21, 3, "all weights are 0, so nothing can be chosen; make one larger"),
    ((POOL, OBJECTIVE, OBJECTIVE.replace("batch", "batch, namespace: b")), 22, 12, "the InferenceObjective batch is "),
    (("- a\n",), 1, 1, "the file must be a mapping, not a list"),
    (("a: {\nb",), 3, 1, "not valid YAML"),
]


@pytest.mark.parametrize(("documents", "line", "column", "sentence"), FAULTS)
def test_errors_say_where_and_what_would_be_right(
    documents: tuple[str, ...], line: int, column: int, sentence: str
) -> None:
    place, _, told = fault(*documents).partition(": ")
    assert place == f"{FILE}, line {line}, column {column}"
    assert sentence in told


def test_a_pool_without_endpoints() -> None:
    resources = parse_resources(POOL, FILE)
    assert [*find_empty(resources, [{"app": "vllm", "zone": "b"}])] == []
    [told] = find_empty(resources, [{"app": "sglang"}])
    assert told == (
        "pools.yaml, line 8, column 5: no endpoint has the labels app: vllm; label one or select others: "
        "there are app: sglang"
    )


def test_files(tmp_path: Path) -> None:
    first, second = tmp_path / "pool.yaml", tmp_path / "route.yaml"
    first.write_text(POOL)
    second.write_text(ROUTE)
    read = [resource for file in (first, second) for resource in read_resources(file)]
    assert build_catalogue(read).models == ("sentiment",)
    with pytest.raises(BadRequest, match="is not there; name an existing resource file"):
        read_resources(tmp_path / "none.yaml")


@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    text = f"{POOL}---{ROUTE}---{REWRITE}---{MODEL}"
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 40)) :]
    try:
        found = build_catalogue(parse_resources(damaged, FILE))
    except BadRequest:
        return
    found.resolve("sentiment", Random(0))


def test_the_manifests_are_those_of_the_kinds() -> None:
    shipped = {path.name: path.read_text("utf-8") for path in crds.FOLDER.iterdir()}
    assert shipped == crds.manifests(), "run: python -m scripts.crds"


@pytest.mark.parametrize("document", [POOL, ROUTE, OBJECTIVE, REWRITE, MODEL])
def test_what_is_read_satisfies_its_manifest(document: str) -> None:
    (read,) = parse_yaml(document, FILE)
    group, _, version = read.data["apiVersion"].partition("/")
    schemas = [
        each["schema"]["openAPIV3Schema"]
        for path in crds.FOLDER.glob(f"{read.data['kind'].lower()}s.{group}.yaml")
        for each in yaml.safe_load(path.read_text("utf-8"))["spec"]["versions"]
        if each["name"] == version
    ]
    assert len(schemas) == 1
    validator = jsonschema_rs.validator_for(schemas[0])
    assert validator.is_valid(read.data)
    assert not validator.is_valid({**read.data, "spec": {}})
