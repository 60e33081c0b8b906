"""Discovery -> scheduler: one model server that may run requests."""

from msgspec import Struct


class Endpoint(Struct, frozen=True):
    """A model server. Two endpoints are the same if their `address` is.

    Attributes:
        address: "host:port"; an IPv6 host is in brackets.
        name: for logs, metrics and pages; unique within its pool.
        labels: what an `InferencePool` selects by.
        models: base models that it serves; empty = not known, so any.
    """

    address: str
    name: str = ""
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()
