"""Configuration file -> `tg-pick`: where it listens, which servers there are, and by which policy it picks."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from tg_base.config import advise, read_table
from tg_base.instances import ADMISSIONS, DEFAULT_POLICY, POLICIES
from tg_base.pools import DnsName, Host, split_address
from tg_base.pools.pool_watcher import PoolSources
from tg_base.pools.scraper import ScrapeOptions
from tg_schema.errors import BadRequest


class PickConfig(Struct, frozen=True):
    """The file of `tg-pick`. Paths are relative to it.

    Attributes:
        listen: "host:port" of the gRPC service.
        policy: who picks; a key of `POLICIES`.
        admission: who refuses; a key of `ADMISSIONS`.
        fallbacks: servers that are named beside the picked one; see `InstancePicker`.
        resources: YAML files of routes, pools, objectives and rewrites.
        endpoint_files: servers, in llm-d's or AIBrix's form.
        endpoints: servers, as "host:port".
        names: servers by DNS, as "name:port".
        models: base models that `endpoints` and `names` serve; empty = any.
        scrape: how their load is read.
    """

    listen: str = "127.0.0.1:9002"
    policy: str = DEFAULT_POLICY
    admission: str = "always"
    fallbacks: Annotated[int, Meta(ge=0, le=2)] = 0
    resources: tuple[Path, ...] = ()
    endpoint_files: tuple[Path, ...] = ()
    endpoints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    scrape: ScrapeOptions = ScrapeOptions()

    def make_sources(self, folder: Path) -> PoolSources:
        """Where pools and servers are described; paths are relative to `folder`.

        Raises:
            BadRequest: an address is none, or there is no source of servers.
        """
        if not (self.endpoint_files or self.endpoints or self.names):
            raise BadRequest("no model servers are configured: set endpoints, names or endpoint_files")
        hosts = tuple(Host(*_split("endpoints", each), models=self.models) for each in self.endpoints)
        names = tuple(DnsName(*_split("names", each), models=self.models) for each in self.names)
        return PoolSources(
            resources=tuple(folder / file for file in self.resources),
            endpoint_files=tuple(folder / file for file in self.endpoint_files),
            hosts=hosts,
            names=names,
        )


def read_pick_config(file: Path) -> PickConfig:
    """Read and check the file.

    Raises:
        BadRequest: the message names file, line and remedy.
    """
    config = read_table(file, PickConfig)
    for field, name, known in (("policy", config.policy, POLICIES), ("admission", config.admission, ADMISSIONS)):
        if name not in known:
            raise BadRequest(f"{file}: unknown {field} {name!r}; {advise(name, list(known))}")
    if split_address(config.listen) is None and not config.listen.endswith(":0"):
        raise BadRequest(f"{file}: listen must be host:port, for instance 0.0.0.0:9002")
    return config


def _split(field: str, text: str) -> tuple[str, tuple[int, ...]]:
    found = split_address(text)
    if found is None:
        raise BadRequest(f"{field}: {text[:100]!r} is no host:port; write it as 10.0.0.7:8000, without a scheme")
    address, port = found
    return address, (port,)
