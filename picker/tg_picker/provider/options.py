"""Configuration -> where a pool's servers are, and how one is picked."""

from pathlib import Path
from typing import Annotated

import msgspec
from typing_extensions import override

from tg_base.llm import Endpoint
from tg_flow.providers.openai import UNCERTAIN, OpenAiOptions
from tg_picker.core import DEFAULT_POLICY, AdmissionRule, QueueLimits, load_policy
from tg_picker.pools import PoolSources, PoolTable, read_sources
from tg_picker.pools.adapter_loader import check_source
from tg_picker.pools.kv_subscriber import KvEventOptions
from tg_picker.pools.scraper import ScrapeOptions, check_path
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

MAX_HEDGED_SHARE = 0.5
"""With a larger share, second attempts would overload the servers."""


class PoolOptions(OpenAiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a pool, in addition to those of an OpenAI-compatible server.

    Attributes:
        tries: rounds through the servers; in each round, each server is tried at most once.
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: files of servers, in llm-d's or AIBrix's format.
        endpoints: servers, as "HOST:PORT".
        names: names in DNS, as "NAME:PORT"; each of their addresses is a server.
        pools: pools with their servers and models, in place of the previous four options.
        adapter_source: the path of routes' adapters for the servers, with {adapter} for the name. A server that gets a
            request for an adapter is first told to load it. "" = it is not told.
        labels: the labels of `endpoints` and `names`, by which the pools of `resources` select.
        policy: the policy that picks a server.
        admission: which requests with a priority below 0 are refused while the servers are busy.
        api_path: the path of OpenAI's API on each server.
        https: whether the servers speak TLS.
        scrape: how the servers' load is read.
        scraped: false = do not read it, and use only our own counts.
        kv_events: where the servers report their KV caches; None = the reports are not read.
        hedge: the share of requests that may be sent to a second server if the first is slow to begin; 0 = none.
        explain: whether each request gets a line in the log, with its server and the reasons.
        waiting: how many requests may wait while all servers are busy, and how long.
    """

    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("POOL_API_KEY",)
    key_needed: bool = False
    without: frozenset[Feature] = UNCERTAIN
    salt_field: str = "cache_salt"
    tries: int = 1
    base_url_variables: tuple[str, ...] = ()
    default_base_url: str | None = None
    resources: tuple[str, ...] = ()
    endpoint_files: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    pools: tuple[PoolTable, ...] = ()
    adapter_source: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    policy: str = DEFAULT_POLICY
    admission: AdmissionRule = "always"
    api_path: str = "/v1"
    https: bool = False
    scrape: ScrapeOptions = ScrapeOptions()
    scraped: bool = True
    kv_events: KvEventOptions | None = None
    hedge: Annotated[float, msgspec.Meta(ge=0, le=MAX_HEDGED_SHARE)] = 0.0
    explain: bool = False
    waiting: QueueLimits = QueueLimits()

    @override
    def endpoint(self, model: str) -> Endpoint:
        """A pool has no single address. Raises BadRequest if there is no server, or an option has an unknown value."""
        if self.base_url is not None:
            raise BadRequest("a pool has no base_url: name its servers in endpoints, endpoint_files or names").at(
                "base_url"
            )
        load_policy(self.policy)
        self.waiting.check("waiting")
        check_path(self.scrape.path, "scrape", "path")
        check_path(self.api_path, "api_path")
        check_source(self.adapter_source)
        self.sources(model)
        return Endpoint(None, model)

    def sources(self, model: str) -> PoolSources:
        """The sources to read.

        Args:
            model: the name of the pool if there are no `resources`.

        Raises:
            BadRequest: see `read_sources`.
        """
        return read_sources(
            pools=self.pools,
            resources=[Path(file) for file in self.resources],
            endpoint_files=[Path(file) for file in self.endpoint_files],
            endpoints=self.endpoints,
            names=self.names,
            labels=self.labels,
            default=model,
        )
