"""The floor: what a bare sender and a bare receiver reach over the same broker, with nothing of ours in between.

    python -m bench.floor --streams 64 --gap 10                  starts a broker of its own
    python -m bench.floor --streams 64 --gap 0 --url pulsar://127.0.0.1:6650 --broker-pid 123

Two processes with the stock client: one 120-byte message a chunk, non-persistent, no batching, sends not awaited one by
one; the receiver has a thread that receives and hands over to its event loop. `--gap 0` is flat out with at most
`--window` sends in flight. Then the round trip at rest: a request on a persistent topic (Shared subscription), its
response on a non-persistent one. One JSON object on standard output: medians over `--runs`.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pulsar
import uvloop

from bench.child import Child, cpu_of, listen, own_cpu, say, spent
from bench.stamped import WARM_UP, Arrivals, Figures, medians, percentile, stamped
from tests.pulsar_server import PulsarServer

WARM_UP_MESSAGES = 3000
WARM_UP_GAP = 0.0003
SILENCE = 1.0
"""Seconds without a message after which the rest counts as lost."""


class Intake:
    """A receiving thread, and what it hands to the loop; one wake-up for as many as come together."""

    def __init__(self, receive: Callable[[], Any], arrived: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[bytes] = deque()
        self._waking = False
        self._arrived = arrived
        threading.Thread(target=self._run, args=(receive,), daemon=True).start()

    def _run(self, receive: Callable[[], Any]) -> None:
        with contextlib.suppress(pulsar.PulsarException, RuntimeError):
            while True:
                self._items.append(receive().data())
                if not self._waking:
                    self._waking = True
                    self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False
        while self._items:
            self._arrived(self._items.popleft())


def client_of(url: str) -> Any:
    """A stock client that says only what went wrong."""
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr"))


def producer_of(client: Any, topic: str, window: int, delay: int = -1) -> Any:
    """A stock producer, without batching unless a delay is given."""
    batching = {"batching_enabled": delay >= 0, "batching_max_publish_delay_ms": max(delay, 0)}
    return client.create_producer(topic, max_pending_messages=window + 1, **batching)


async def receiver(options: argparse.Namespace) -> None:
    """Role: count what arrives until told that nothing more is sent."""
    arrivals = Arrivals()

    def arrived(body: bytes) -> None:
        arrivals.add(body)

    client = client_of(options.url)
    consumer = client.subscribe(options.topic, "floor", pulsar.ConsumerType.Exclusive, receiver_queue_size=10_000)
    Intake(consumer.receive, arrived)
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
    client.close()


async def sender(options: argparse.Namespace) -> None:
    """Role: send `streams` streams side by side whenever told."""
    client = client_of(options.url)
    producer = producer_of(client, options.topic, options.window, options.batch_delay)
    window = Window(options.window)

    async def send(stream: int, number: int) -> None:
        await window.enter()
        producer.send_async(stamped(stream, number), window.left)

    async def stream(index: int) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time() + options.gap / 1000 * index / options.streams
        for number in range(options.chunks):
            if options.gap:
                await asyncio.sleep(start + number * options.gap / 1000 - loop.time())
            await send(index, number)

    for number in range(WARM_UP_MESSAGES):
        await send(WARM_UP, number)
        await asyncio.sleep(WARM_UP_GAP)
    await window.empty()
    say("ready")
    while await asyncio.to_thread(listen) == "begin":
        cpu = own_cpu()
        await asyncio.gather(*(stream(index) for index in range(options.streams)))
        await window.empty()
        say({"sent": options.streams * options.chunks, "cpu": spent(cpu, own_cpu())})
    client.close()


class Window:
    """Bounds the sends in flight; completions come from the client's thread, one wake-up for many."""

    def __init__(self, size: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._left = itertools.count(1)
        self._done = 0
        self._begun = 0
        self._changed = asyncio.Event()
        self._waking = False

    async def enter(self) -> None:
        """Wait for room, and take it."""
        while self._begun - self._done >= self._size:
            self._changed.clear()
            await self._changed.wait()
        self._begun += 1

    async def empty(self) -> None:
        """Wait until everything has left."""
        while self._begun > self._done:
            self._changed.clear()
            await self._changed.wait()

    def left(self, _result: Any, _id: Any) -> None:
        """The client's callback."""
        self._done = next(self._left)
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._changed.set()


async def responder(options: argparse.Namespace) -> None:
    """Role: answer every request on a persistent topic with one message on a non-persistent one."""
    client = client_of(options.url)
    producer = producer_of(client, response_of(options.topic), 100)
    consumer = client.subscribe(request_of(options.topic), "floor", pulsar.ConsumerType.Shared)

    def receive() -> Any:
        message = consumer.receive()
        consumer.acknowledge(message.message_id())
        return message

    Intake(receive, lambda body: producer.send_async(body, lambda *_: None))
    say("ready")
    await asyncio.to_thread(listen)
    client.close()


async def asker(options: argparse.Namespace) -> None:
    """Role: one request after the other; say how long each took."""
    answered: asyncio.Queue[bytes] = asyncio.Queue()
    client = client_of(options.url)
    producer = producer_of(client, request_of(options.topic), 100)
    consumer = client.subscribe(response_of(options.topic), "floor", receiver_queue_size=10_000)
    Intake(consumer.receive, answered.put_nowait)
    arrivals = Arrivals()
    for number in range(2 * options.trips):
        producer.send_async(stamped(WARM_UP if number < options.trips else 0, number), lambda *_: None)
        arrivals.add(await answered.get())
        await asyncio.sleep(0.005)
    late = [each / 1e6 for each in arrivals.late_ns]
    say({"p50_ms": percentile(late, 50), "p99_ms": percentile(late, 99)})
    client.close()


def request_of(topic: str) -> str:
    """The round trip's way there."""
    return topic.replace("non-persistent://tg/response/", "persistent://tg/request/")


def response_of(topic: str) -> str:
    """The round trip's way back."""
    return topic + "-back"


ROLES = {"receiver": receiver, "sender": sender, "responder": responder, "asker": asker}


def streams(options: argparse.Namespace) -> dict[str, Any]:
    """Run sender and receiver against each other."""
    common = common_arguments(options)
    runs: list[dict[str, float]] = []
    with Child("bench.floor", "--role", "receiver", *common) as far:
        far.hear()
        with Child("bench.floor", "--role", "sender", *common) as near:
            near.hear()
            for _ in range(options.runs):
                broker = cpu_of(options.broker_pid)
                far.tell("begin")
                far.hear()
                near.tell("begin")
                sent = near.hear()
                far.tell(str(sent["sent"]))
                came = far.hear()
                cpu = {"sender": sent["cpu"], "receiver": came.pop("cpu")}
                if broker is not None:
                    cpu["broker"] = spent(broker, cpu_of(options.broker_pid))
                per_1000 = {f"cpu_s_per_1000_{name}": 1000 * used / sent["sent"] for name, used in cpu.items()}
                runs.append({**came, **per_1000})
    return medians(runs)


def round_trip(options: argparse.Namespace) -> dict[str, float]:
    """Run asker and responder against each other."""
    common = common_arguments(options)
    with Child("bench.floor", "--role", "responder", *common) as far:
        far.hear()
        with Child("bench.floor", "--role", "asker", *common) as near:
            answer: dict[str, float] = near.hear()
    return answer


def common_arguments(options: argparse.Namespace) -> list[str]:
    """What a child must know."""
    names = ("url", "streams", "chunks", "gap", "window", "trips")
    topic = f"non-persistent://tg/response/{uuid4().hex}"
    values = [f"--{name}={getattr(options, name)}" for name in names]
    return ["--topic", topic, f"--batch-delay={options.batch_delay}", *values]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, as one object."""
    shape = {"streams": options.streams, "chunks": options.chunks, "gap_ms": options.gap, "runs": options.runs}
    return {**shape, **streams(options), "round_trip": round_trip(options)}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="broker to use; without it one is started")
    parser.add_argument("--broker-pid", type=int, help="whose CPU time to read as the broker's")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--gap", type=float, default=10.0, help="ms between the chunks of a stream; 0 = flat out")
    parser.add_argument("--window", type=int, default=1000, help="sends in flight at most")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--trips", type=int, default=200)
    parser.add_argument(
        "--batch-delay", type=int, default=-1, help="let the client batch for so many ms; -1 = no batches"
    )
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        uvloop.run(ROLES[options.role](options))
    elif options.url:
        print(json.dumps(measure(options)))
    else:
        with PulsarServer() as server:
            options.url, options.broker_pid = server.service_url, server.pid
            print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
