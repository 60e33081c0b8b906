"""Configuration file -> `tg-pick`: where it listens, which servers there are, and by which policy it picks."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tg_base.bus import find_bus
from tg_base.config import BusConfig, read_table
from tg_picker.core import DEFAULT_POLICY, AdmissionRule, QueueLimits, load_policy
from tg_picker.pools import PoolSources, PoolTable, read_sources, split_address
from tg_picker.pools.adapter_loader import check_source
from tg_picker.pools.kv_subscriber import KvEventOptions
from tg_picker.pools.scraper import ScrapeOptions, check_path
from tg_schema.errors import BadRequest


class PickConfig(Struct, frozen=True):
    """The file of `tg-pick`. Paths are relative to it.

    Attributes:
        listen: "host:port" of the gRPC service.
        http: "host:port" of the page of model servers, the metrics and the health; "" = none. It has no token.
        hosts: further `Host` names that requests there may have, as `hosts` of a gateway.
        policy: who picks; the name of an entry point of `tokengrid.policies`, or "module:Class".
        admission: which requests of a priority below 0 are refused when the servers are busy.
        fallbacks: servers that are named beside the picked one; see `InstancePicker`.
        cluster: how Envoy's cluster of model servers finds the picked one: by its load balancing policy
            `override_host`, or of type `ORIGINAL_DST`.
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: servers, in llm-d's or AIBrix's form.
        endpoints: servers, as "host:port".
        names: servers by DNS, as "name:port".
        pools: pools with their servers and models, in place of the four before.
        models: base models that `endpoints` and `names` serve; empty = any.
        adapter_source: where the adapters of routes are for the servers, with {adapter} for the name; a server that
            gets a request for one is asked to load it first. "" = it is not.
        scrape: how their load is read.
        kv_events: where they report their caches; None = nobody listens.
        bus: over which pickers and pools share their placements; None = this one stands alone.
        waiting: how many requests wait while all servers are busy, and how long.
    """

    listen: str = "127.0.0.1:9002"
    http: str = ""
    hosts: tuple[str, ...] = ()
    policy: str = DEFAULT_POLICY
    admission: AdmissionRule = "always"
    fallbacks: Annotated[int, Meta(ge=0, le=2)] = 0
    cluster: Literal["override_host", "original_dst"] = "override_host"
    resources: tuple[Path, ...] = ()
    endpoint_files: tuple[Path, ...] = ()
    endpoints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    pools: tuple[PoolTable, ...] = ()
    models: tuple[str, ...] = ()
    adapter_source: str = ""
    scrape: ScrapeOptions = ScrapeOptions()
    kv_events: KvEventOptions | None = None
    bus: BusConfig | None = None
    waiting: QueueLimits = QueueLimits()

    def make_sources(self, folder: Path) -> PoolSources:
        """Where pools and servers are described; paths are relative to `folder`.

        Raises:
            BadRequest: an address is none or there twice, or there is no source of servers.
        """
        return read_sources(
            pools=self.pools,
            resources=[folder / file for file in self.resources],
            endpoint_files=[folder / file for file in self.endpoint_files],
            endpoints=self.endpoints,
            names=self.names,
            models=self.models,
            ip_only=True,
        )

    def check(self) -> None:
        """What no type says.

        Raises:
            BadRequest: see `read_pick_config`.
        """
        load_policy(self.policy)
        for field, address, example in (("listen", self.listen, "0.0.0.0:9002"), ("http", self.http, "127.0.0.1:9090")):
            # Port 0 is any free one.
            if address and split_address(address) is None and not address.endswith(":0"):
                raise BadRequest(f"{field} must be host:port, for instance {example}").at(field)
        if self.bus is not None and find_bus(self.bus.url, "bus", "url").name == "memory":
            raise BadRequest("memory:// reaches no other picker: write pulsar://host:port").at("bus", "url")
        self.waiting.check("waiting")
        check_path(self.scrape.path, "scrape", "path")
        check_source(self.adapter_source)
        self.make_sources(Path())


def read_pick_config(file: Path) -> PickConfig:
    """Read and check the file.

    Raises:
        BadRequest: the message names file, line and remedy.
    """
    return read_table(file, PickConfig, PickConfig.check)


def override_config(config: PickConfig, listen: str | None, http: str | None, bus: str | None) -> PickConfig:
    """The configuration with what the command line says in its place, checked as if it stood in the file.

    Raises:
        BadRequest: see `read_pick_config`.
    """
    made = replace(config, listen=listen or config.listen, http=http or config.http)
    if bus is not None:
        made = replace(made, bus=replace(made.bus or BusConfig(), url=bus))
    made.check()
    return made
