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
        http: "host:port" of the page of model servers, of the metrics and of the health; "" = none. They need no token.
        hosts: further `Host` names that requests to `http` may have, as a gateway's `hosts`.
        policy: the policy that picks: an entry point's name in `tokengrid.policies`, or "module:Class".
        admission: which requests with a priority below 0 are refused while the servers are busy.
        fallbacks: servers that are named in addition to the picked one; see `InstancePicker`.
        cluster: how Envoy's cluster of model servers finds the picked one: by its load balancing policy
            `override_host`, or of type `ORIGINAL_DST`.
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: files of servers, in llm-d's or AIBrix's format.
        endpoints: servers, as "host:port".
        names: servers by name in DNS, as "name:port".
        pools: pools with their servers and models, in place of the previous four fields.
        models: base models that `endpoints` and `names` serve; empty = any.
        adapter_source: the path of routes' adapters for the servers, with {adapter} for the name. A server that gets a
            request for an adapter is first told to load it. "" = it is not told.
        scrape: how the servers' load is read.
        kv_events: where the servers report their KV caches; None = the reports are not read.
        bus: the bus over which pickers and pools share their placements; None = this picker shares nothing.
        waiting: how many requests may wait while all servers are busy, and how long.
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
        """The sources that describe pools and servers; paths are relative to `folder`.

        Raises:
            BadRequest: an address is malformed or repeated, or there is no source of servers.
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
        """Check what the types cannot express.

        Raises:
            BadRequest: see `read_pick_config`.
        """
        load_policy(self.policy)
        for field, address, example in (("listen", self.listen, "0.0.0.0:9002"), ("http", self.http, "127.0.0.1:9090")):
            # Port 0 stands for any free port.
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
    """The configuration with the values of the command line in place of its own, checked like a file.

    Raises:
        BadRequest: see `read_pick_config`.
    """
    made = replace(config, listen=listen or config.listen, http=http or config.http)
    if bus is not None:
        made = replace(made, bus=replace(made.bus or BusConfig(), url=bus))
    made.check()
    return made
