"""Other gateways in the same run: the same fake provider, the same load, one after the other, at the same doors.

    python -m bench.peers --litellm PATH/bin/litellm             one stream and 64, medians of three (ten minutes)
    python -m bench.peers --litellm PATH/bin/litellm --pulsar --most --runs 1

LiteLLM's proxy comes from its own package (`litellm[proxy]`), which the user installs in an environment of its
own. The bare parsing proxy stands beside it, which has the door of chats alone, and embedded Tokengrid; with `--pulsar`
also Tokengrid over a real broker, with `--most` also 256 streams.
"""

import argparse
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.pipeline import (
    CALM,
    ENVIRONMENT,
    MANY,
    MOST,
    ONE,
    Row,
    bare_proxy,
    free_port,
    load,
    provider,
    repeated,
    started,
    table,
)
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

PATIENCE = 120.0
OPEN = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
DOORS = {"openai": "chat", "responses": "Responses", "anthropic": "Messages"}
# A vendor that has chats alone, as the fake provider: LiteLLM would pass the other doors' requests on to `openai`.
LITELLM = """
model_list:
  - model_name: bench
    litellm_params: {{ model: groq/bench, api_base: "{provider}/v1", api_key: none-needed }}
"""


@dataclass(frozen=True)
class Peer:
    """Something with a door, and the processes that it consists of."""

    url: str
    door: str
    subjects: list[Subject]

    def under(self, shape: object) -> Row:
        """One run of the load client."""
        return load(self.url, self.door, shape, self.subjects)  # type: ignore[arg-type]


@contextmanager
def litellm(program: Path, fake: str, folder: Path) -> Iterator[Peer]:
    """LiteLLM's proxy with one model and no database."""
    config, port = folder / "litellm.yaml", free_port()
    config.write_text(LITELLM.format(provider=fake), "utf-8")
    command = [str(program), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    with Subject("litellm", command, folder / "litellm.log", OPEN, quiet=True) as subject:
        _wait_http(f"http://127.0.0.1:{port}/health/liveliness")
        yield Peer(f"http://127.0.0.1:{port}", "openai", [subject])


@contextmanager
def bare(fake: str, folder: Path) -> Iterator[Peer]:
    """The bare parsing proxy."""
    with bare_proxy(fake, folder) as (url, subject):
        yield Peer(url, "openai", [subject])


@contextmanager
def ours(fake: str, folder: Path, bus: str) -> Iterator[Peer]:
    """Tokengrid: one process on the memory bus, or gateway and processor over a broker."""
    home = folder / bus.partition(":")[0]
    home.mkdir()
    url, common = started(home, fake, bus)
    parts = [[]] if bus == "memory://" else [["--only", "gateway"], ["--only", "text-completion"]]
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(
                Subject(f"part{number}", tokengrid(*part, *common), home / f"{number}.log", ENVIRONMENT)
            )
            for number, part in enumerate(parts)
        ]
        wait_ready(url)
        yield Peer(url, "sse", subjects)


def _wait_http(url: str) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=2)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"{url} does not answer; see the log of the process")


def compared(runs: int, folder: Path, program: Path, *, pulsar: bool, most: bool) -> Row:
    """Every peer at every door that it has, under the same loads, in turn."""
    with ExitStack() as stack:
        fake = stack.enter_context(provider(folder))
        embedded = stack.enter_context(ours(fake, folder, "memory://"))
        other = stack.enter_context(litellm(program, fake, folder))
        peers = {"bare proxy": stack.enter_context(bare(fake, folder)), "Tokengrid, native": embedded}
        for door, name in DOORS.items():
            peers[f"Tokengrid, {name}"] = replace(embedded, door=door)
            peers[f"LiteLLM, {name}"] = replace(other, door=door)
        if pulsar:
            server = stack.enter_context(PulsarServer())
            peers["Tokengrid over Pulsar"] = stack.enter_context(ours(fake, folder, server.service_url))
        for peer in peers.values():
            peer.under(CALM)
        measures: dict[str, Callable[[], Row]] = {}
        for shape in (ONE, MANY, MOST) if most else (ONE, MANY):
            for name, peer in peers.items():
                measures[f"{name}: {shape.name}"] = lambda peer=peer, shape=shape: peer.under(shape)  # type: ignore[misc]
        rows = repeated(runs, measures)
        return {"rows": rows, "ratios": {}, "idle_cores": 0.0, "resident_mib": _resident(peers)}


def _resident(peers: dict[str, Peer]) -> dict[str, float]:
    return {name: round(sum(subject.resident for subject in peer.subjects)) for name, peer in peers.items()}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--litellm", type=Path, required=True)
    parser.add_argument("--pulsar", action="store_true")
    parser.add_argument("--most", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        print(table(compared(args.runs, Path(folder), args.litellm, pulsar=args.pulsar, most=args.most)))


if __name__ == "__main__":
    main()
