"""Discovery, pages, headers and heartbeats -> scheduler: one model server, and the load that it reports."""

from typing import Literal

from msgspec import Struct


class Endpoint(Struct, frozen=True):
    """A model server. Two endpoints are the same if their `address` is.

    Attributes:
        address: "host:port"; an IPv6 host is in brackets.
        name: for logs, metrics and pages; unique within its pool.
        labels: the labels by which an `InferencePool` selects it.
        models: base models that it serves; empty = not known, so it may be any.
    """

    address: str
    name: str = ""
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()

    def serves(self, model: str) -> bool:
        """Whether it serves a base model, as far as is known. "" stands for any model, so every server serves it."""
        return not (self.models and model) or model in self.models


Residency = Literal["gpu", "cpu"]
"""Where a loaded adapter is: "gpu" = ready to run, "cpu" = it must be copied to the accelerator first."""


class AdapterReport(Struct, frozen=True):
    """A server's report about its LoRA adapters.

    Attributes:
        slots: adapters that a batch may use concurrently; None = not reported.
        active: adapters with a running request. vLLM lists the same names in `waiting` (llm-d-router#2605).
        waiting: adapters with a queued request.
        resident: loaded adapters, used or idle; None = the server reports only adapters with requests.
    """

    slots: int | None = None
    active: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    resident: dict[str, Residency] | None = None


class LoadReport(Struct, frozen=True):
    """The load of one server, as it reported it once. None = not reported: a reader must cope with any subset.

    Every number is finite and in its range: the reader of a page or header drops all others.

    Attributes:
        read_at: seconds on the scheduler's clock.
        queued: requests that wait on the server.
        running: requests in the batch.
        kv_usage: share of the KV cache in use, from 0 to 1.
        block_tokens: tokens in a block of the KV cache.
        blocks: blocks of the KV cache.
        adapters: None = the server reports nothing about adapters.
        queued_by_adapter: requests that wait, by adapter; None = not reported.
        started_at: when the server's process began, on the server's own clock; None = not reported.
        interval: seconds from one scrape of the server to the next.
        kept_at: the `read_at` of the oldest part, if several reports were merged; None = all parts are of `read_at`.
    """

    read_at: float
    queued: int | None = None
    running: int | None = None
    kv_usage: float | None = None
    block_tokens: int | None = None
    blocks: int | None = None
    adapters: AdapterReport | None = None
    queued_by_adapter: dict[str, int] | None = None
    started_at: float | None = None
    interval: float = 0.05
    kept_at: float | None = None
