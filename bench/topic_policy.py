"""Persistent or non-persistent? Our bus on both ends, one row for each kind of topic that could carry a message.

    python -m bench.topic_policy                   starts a broker of its own; prints a table, medians of the runs

Requests go through a group without prefetch and are acknowledged, responses to a reader without a group. A sender and a
receiver process, `--streams` streams; at a gap of 0 each stream sends as fast as its publishes return.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import uuid4

import uvloop

from bench.child import Child, cpu_of, listen, own_cpu, say, spent
from bench.stamped import WARM_UP, Arrivals, Figures, medians, stamped
from tests.pulsar_server import PulsarServer
from tg_base.bus import Delivery, open_bus

WARM_UP_MESSAGES = 2000
SILENCE = 1.0
LOADS = ((1, 64, 10.0), (16, 64, 10.0), (64, 64, 10.0), (16, 256, 0.0), (256, 32, 0.0))
"""Streams, messages of each, ms between them."""


class Kind(NamedTuple):
    """A use of a topic, and the topic that it could be."""

    use: str
    topic: str
    group: str
    prefetch: int


KINDS = (
    Kind("request, persistent, no prefetch", "persistent://tg/request/", "workers", 0),
    Kind("request, persistent, prefetch 16", "persistent://tg/request/", "workers", 16),
    Kind("response, persistent", "persistent://tg/response/", "", 1000),
    Kind("response, non-persistent", "non-persistent://tg/response/", "", 1000),
)


async def receiver(options: argparse.Namespace) -> None:
    """Role: count what arrives."""
    arrivals = Arrivals()

    async def read(deliveries: AsyncIterator[Delivery]) -> None:
        async for delivery in deliveries:
            delivery.ack()
            arrivals.add(delivery.body)

    async with (
        open_bus(options.url) as bus,
        bus.subscribe(options.topic, options.group or None, prefetch=options.prefetch) as deliveries,
    ):
        reading = asyncio.create_task(read(deliveries))
        say("ready")
        while await asyncio.to_thread(listen) == "begin":
            arrivals, cpu = Arrivals(), own_cpu()
            say("begun")
            sent = int(await asyncio.to_thread(listen))
            before = -1
            while before < len(arrivals.late_ns) < sent:
                before = len(arrivals.late_ns)
                await asyncio.sleep(SILENCE)
            say({**Figures.of(arrivals, sent).as_dict(), "cpu": spent(cpu, own_cpu())})
        reading.cancel()


async def sender(options: argparse.Namespace) -> None:
    """Role: send the streams whenever told."""
    async with open_bus(options.url) as bus:

        async def stream(index: int) -> None:
            loop = asyncio.get_running_loop()
            start = loop.time() + options.gap / 1000 * index / options.streams
            for number in range(options.chunks):
                if options.gap:
                    await asyncio.sleep(start + number * options.gap / 1000 - loop.time())
                await bus.publish(options.topic, stamped(index, number), {"id": "x"})

        for number in range(WARM_UP_MESSAGES):
            await bus.publish(options.topic, stamped(WARM_UP, number), {"id": "x"})
        say("ready")
        while await asyncio.to_thread(listen) == "begin":
            cpu = own_cpu()
            async with asyncio.TaskGroup() as tasks:
                for index in range(options.streams):
                    tasks.create_task(stream(index))
            say({"sent": options.streams * options.chunks, "cpu": spent(cpu, own_cpu())})


ROLES = {"receiver": receiver, "sender": sender}


def row(options: argparse.Namespace, kind: Kind, load: tuple[int, int, float]) -> dict[str, float]:
    """Medians of one kind of topic under one load."""
    count, chunks, gap = load
    common = [f"--url={options.url}", f"--topic={kind.topic}{uuid4().hex}", f"--group={kind.group}"]
    common += [f"--prefetch={kind.prefetch}", f"--streams={count}", f"--chunks={chunks}", f"--gap={gap}"]
    with Child("bench.topic_policy", "--role=receiver", *common) as far:
        far.hear()
        with Child("bench.topic_policy", "--role=sender", *common) as near:
            near.hear()
            return medians([one_run(options, near, far) for _ in range(options.runs)])


def one_run(options: argparse.Namespace, near: Child, far: Child) -> dict[str, float]:
    """One run, with the CPU of the three processes in ms for 1,000 messages."""
    broker = cpu_of(options.broker_pid)
    far.tell("begin")
    far.hear()
    near.tell("begin")
    sent = near.hear()
    far.tell(str(sent["sent"]))
    came: dict[str, Any] = far.hear()
    per = 1e6 / sent["sent"]
    came["receiver_cpu"] = came.pop("cpu") * per
    came["broker_cpu"] = (spent(broker, cpu_of(options.broker_pid)) or 0.0) * per
    came["sender_cpu"] = sent["cpu"] * per
    return came


def measure(options: argparse.Namespace) -> None:
    """Print the table."""
    print("| topic | streams x messages, gap | p50 / p99, ms | messages/s | lost | CPU ms per 1,000: r / b / s |")
    print("|---|---|---|---|---|---|")
    for load in LOADS:
        for kind in KINDS:
            it = row(options, kind, load)
            shape = f"{load[0]} x {load[1]}, {f'{load[2]:g} ms' if load[2] else 'flat out'}"
            cpu = f"{it['receiver_cpu']:.0f} / {it['broker_cpu']:.0f} / {it['sender_cpu']:.0f}"
            late = f"{it['p50_ms']:.2f} / {it['p99_ms']:.1f}"
            print(f"| {kind.use} | {shape} | {late} | {it['rate']:,.0f} | {it['lost']:.0f} | {cpu} |", flush=True)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="broker to use; without it one is started")
    parser.add_argument("--broker-pid", type=int, help="whose CPU time to read as the broker's")
    parser.add_argument("--runs", type=int, default=3)
    for name, kind in (("streams", int), ("chunks", int), ("gap", float), ("prefetch", int), ("topic", str)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--group", default="", help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        uvloop.run(ROLES[options.role](options))
    elif options.url:
        measure(options)
    else:
        with PulsarServer() as server:
            options.url, options.broker_pid = server.service_url, server.pid
            measure(options)


if __name__ == "__main__":
    main()
