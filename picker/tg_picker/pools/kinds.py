"""The kinds of resources, field by field: LLMRoute, InferencePool and what refers to them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_PORTS = 8
"""Ports of an `InferencePool`; each is an endpoint of every selected address."""

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping of a resource; an unknown field is an error, so that a typo is not ignored."""


class Metadata(Node, frozen=True):
    """Name, namespace and labels."""

    name: Name
    namespace: Name = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


SET_BY_CLUSTER = frozenset(
    {
        "creationTimestamp", "deletionTimestamp", "finalizers", "generateName", "generation", "managedFields",
        "ownerReferences", "resourceVersion", "selfLink", "uid",
    }
)  # fmt: skip
"""Fields of the metadata that `kubectl get -o yaml` adds, and that are not read."""


class PoolRef(Node, frozen=True):
    """A reference to an `InferencePool` of the same namespace."""

    name: Name
    group: str = ""
    kind: Literal["InferencePool"] = "InferencePool"


class ParentRef(Node, frozen=True):
    """The gateway of a route. Checked and not used: the process that loads the file is the gateway."""

    name: Name
    group: str = ""
    kind: str = ""
    namespace: str = ""
    section_name: str = ""
    port: Port | None = None


class BackendRef(PoolRef, frozen=True):
    """A pool of a route, and its share of the requests."""

    namespace: str = ""
    """"" = the route's own."""
    port: Port | None = None
    weight: Weight = 1


class Quantile(Node, frozen=True):
    """A share of the requests: 99 of 100."""

    numerator: Annotated[int, Meta(ge=1)]
    denominator: Annotated[int, Meta(ge=2, le=1_000_000)] = 100


class Latency(Node, frozen=True):
    """The share of the requests that keep a latency."""

    value: str
    """A duration as Kubernetes writes it: `2s`, `500ms`, `1m30s`."""
    quantile: Quantile


class RouteObjective(Node, frozen=True):
    """A latency objective of a use case: for the time between two tokens, or until the first, which is ours alone."""

    type: Literal["OutputTokenLatency", "TimeToFirstToken"]
    latency: Latency


class RouteMetrics(Node, frozen=True):
    """How a route's metrics are published: only the format of `/metrics`."""

    format: Literal["Prometheus"] = "Prometheus"


class RouteFailurePolicy(Node, frozen=True):
    """How a request without an answer in time is retried, with the names of gRPC's retry and hedging policies."""

    max_attempts: Annotated[int, Meta(ge=1)] | None = None
    hedging_delay: str | None = None
    """A duration as Kubernetes writes it."""
    max_wait: str | None = None
    """The longest wait for a server, as a duration of Kubernetes."""


class Adapter(Node, frozen=True):
    """The LoRA adapter of a use case, which is the model that its clients name."""

    name: Name
    priority: int = 0
    objectives: tuple[RouteObjective, ...] = ()
    metrics: RouteMetrics = RouteMetrics()
    failure_policy: RouteFailurePolicy = RouteFailurePolicy()


class LLMRoute(Node, frozen=True):
    """A use case upon one or more pools, as the instance gateway's proposal has it."""

    backend_refs: tuple[BackendRef, ...]
    adapter: Adapter
    parent_refs: tuple[ParentRef, ...] = ()


class Selector(Node, frozen=True):
    """The endpoints that have all these labels."""

    match_labels: dict[str, str]


class PortNumber(Node, frozen=True):
    """A port on which each selected address serves, or the endpoint picker of a pool."""

    number: Port


class PickerRef(Node, frozen=True):
    """The endpoint picker of a pool. Checked and not used: the process that loads the file does the picking."""

    name: Name
    group: str = ""
    kind: str = "Service"
    port: PortNumber | None = None
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"


class InferencePool(Node, frozen=True):
    """Model servers that share a base model."""

    selector: Selector
    target_ports: tuple[PortNumber, ...]
    app_protocol: Literal["http", "kubernetes.io/h2c"] = "http"
    endpoint_picker_ref: PickerRef | None = None


class InferenceObjective(Node, frozen=True):
    """A priority that requests name; below 0 they may be shed."""

    pool_ref: PoolRef
    priority: int = 0


class ModelMatch(Node, frozen=True):
    """The model that a client names."""

    value: Name
    type: Literal["Exact"] = "Exact"


class RewriteMatch(Node, frozen=True):
    """One condition of a rule."""

    model: ModelMatch


class RewriteTarget(Node, frozen=True):
    """The model that a server is asked for, and its share of the requests."""

    model_rewrite: Name
    weight: Weight = 1


class RewriteRule(Node, frozen=True):
    """Requests for one of `matches` go to one of `targets`.

    Without `matches`, it applies to models that no other rule of the pool names.
    """

    targets: tuple[RewriteTarget, ...]
    matches: tuple[RewriteMatch, ...] = ()


class InferenceModelRewrite(Node, frozen=True):
    """Other names for the models of a pool, by weight."""

    pool_ref: PoolRef
    rules: tuple[RewriteRule, ...]


class TargetModel(Node, frozen=True):
    """The model that a server is asked for, and its share of the requests."""

    name: Name
    weight: Weight = 1


class InferenceModel(Node, frozen=True):
    """A use case on a pool: the older kind, later split into objective and rewrite."""

    model_name: Name
    pool_ref: PoolRef
    criticality: Literal["Critical", "Standard", "Default", "Sheddable"] = "Standard"
    """`Default` is what v1alpha1 first called `Standard`."""
    target_models: tuple[TargetModel, ...] = ()


Spec = LLMRoute | InferencePool | InferenceObjective | InferenceModelRewrite | InferenceModel
_EXPERIMENTAL = "inference.networking.x-k8s.io"
KINDS: dict[type[Spec], tuple[str, ...]] = {
    LLMRoute: ("inference.x-k8s.io/v1alpha1",),
    InferencePool: ("inference.networking.k8s.io/v1",),
    InferenceObjective: (f"{_EXPERIMENTAL}/v1alpha2", "llm-d.ai/v1alpha2"),
    InferenceModelRewrite: (f"{_EXPERIMENTAL}/v1alpha2", "llm-d.ai/v1alpha2"),
    InferenceModel: (f"{_EXPERIMENTAL}/v1alpha1", f"{_EXPERIMENTAL}/v1alpha2"),
}
"""Each kind, by the name of its class, and the API versions in which it has this form."""
