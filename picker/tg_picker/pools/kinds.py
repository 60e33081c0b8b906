"""The kinds of resources, field by field: LLMRoute, InferencePool and the kinds that refer to them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_PORTS = 8
"""Most ports of an `InferencePool`; each is an endpoint at every selected address."""

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping in a resource. An unknown field is an error, so that a typing error is not ignored."""


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
"""Metadata fields that `kubectl get -o yaml` adds. They are not read."""


class PoolRef(Node, frozen=True):
    """A reference to an `InferencePool` of the same namespace."""

    name: Name
    group: str = ""
    kind: Literal["InferencePool"] = "InferencePool"


class ParentRef(Node, frozen=True):
    """The gateway of a route. It is validated but not used: the process that loads the file is the gateway."""

    name: Name
    group: str = ""
    kind: str = ""
    namespace: str = ""
    section_name: str = ""
    port: Port | None = None


class BackendRef(PoolRef, frozen=True):
    """A pool of a route, with its weight."""

    namespace: str = ""
    """The pool's namespace; "" = the route's namespace."""
    port: Port | None = None
    weight: Weight = 1


class Quantile(Node, frozen=True):
    """A share of the requests, for example 99 of 100."""

    numerator: Annotated[int, Meta(ge=1)]
    denominator: Annotated[int, Meta(ge=2, le=1_000_000)] = 100


class Latency(Node, frozen=True):
    """A latency, and the share of the requests that must not exceed it."""

    value: str
    """A duration as Kubernetes writes it: `2s`, `500ms`, `1m30s`."""
    quantile: Quantile


class RouteObjective(Node, frozen=True):
    """A latency objective of a use case: for the time between two tokens, or (our extension) until the first token."""

    type: Literal["OutputTokenLatency", "TimeToFirstToken"]
    latency: Latency


class RouteMetrics(Node, frozen=True):
    """How a route's metrics are published. There is only one format, that of `/metrics`."""

    format: Literal["Prometheus"] = "Prometheus"


class RouteFailurePolicy(Node, frozen=True):
    """How a request is retried if no answer comes in time; the names are those of gRPC's retry and hedging policies."""

    max_attempts: Annotated[int, Meta(ge=1)] | None = None
    hedging_delay: str | None = None
    """A duration as Kubernetes writes it."""
    max_wait: str | None = None
    """The longest wait for a server, as a duration of Kubernetes."""


class Adapter(Node, frozen=True):
    """The LoRA adapter of a use case; clients use its name as the model."""

    name: Name
    priority: int = 0
    objectives: tuple[RouteObjective, ...] = ()
    metrics: RouteMetrics = RouteMetrics()
    failure_policy: RouteFailurePolicy = RouteFailurePolicy()


class LLMRoute(Node, frozen=True):
    """A use case on one or more pools, in the form of the instance gateway's proposal."""

    backend_refs: tuple[BackendRef, ...]
    adapter: Adapter
    parent_refs: tuple[ParentRef, ...] = ()


class Selector(Node, frozen=True):
    """The endpoints that have all these labels."""

    match_labels: dict[str, str]


class PortNumber(Node, frozen=True):
    """A port: the one on which each selected address serves, or the one of a pool's endpoint picker."""

    number: Port


class PickerRef(Node, frozen=True):
    """The endpoint picker of a pool. It is validated but not used: the process that loads the file picks."""

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
    """A priority to which requests refer by name; requests below 0 may be shed."""

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
    """The model that a server is asked for, with its weight."""

    model_rewrite: Name
    weight: Weight = 1


class RewriteRule(Node, frozen=True):
    """Rewrites requests for one of `matches` to one of `targets`.

    Without `matches`, it applies to models that no other rule of the pool names.
    """

    targets: tuple[RewriteTarget, ...]
    matches: tuple[RewriteMatch, ...] = ()


class InferenceModelRewrite(Node, frozen=True):
    """Other names for the models of a pool, by weight."""

    pool_ref: PoolRef
    rules: tuple[RewriteRule, ...]


class TargetModel(Node, frozen=True):
    """The model that a server is asked for, with its weight."""

    name: Name
    weight: Weight = 1


class InferenceModel(Node, frozen=True):
    """A use case on a pool: the older kind, which was later split into objective and rewrite."""

    model_name: Name
    pool_ref: PoolRef
    criticality: Literal["Critical", "Standard", "Default", "Sheddable"] = "Standard"
    """`Default` is the name that v1alpha1 first had for `Standard`."""
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
"""Each kind, with the API versions in which it has this form."""
