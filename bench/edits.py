"""How soon an edit of the file, and a new processor, are in force on eight gateways; no stream may end meanwhile.

    python -m bench.edits --times 10

Over a real Pulsar, each part a process. An edit adds an alias; it is in force once the last of the gateways lists it.
A processor brings a flow and a model of its own, which no file has; the time runs from its line `ready:`. Through each
gateway runs a stream all the time. Exit code 1 if one of them has ended.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession

from tests.connected.pipeline import Pipeline, pipeline
from tests.fakes.live_openai import LiveOpenAi
from tests.pulsar_server import PulsarServer

GATEWAYS = 8
LOOK_SECONDS = 0.005
READY_SECONDS = 300.0
"""In which a part has to serve, however busy the machine is."""


async def listed(http: ClientSession, path: str, name: str) -> None:
    """Return once a gateway's list has the name."""
    while True:
        async with http.get(path) as answer:
            if f'"{name}"' in await answer.text():
                return
        await asyncio.sleep(LOOK_SECONDS)


async def ask(http: ClientSession, flow: str) -> None:
    """A stream that does not end by itself."""
    path = f"api/v1/flow/{flow}/service/text-completion"
    async with http.post(path, json={"prompt": "x", "streaming": True}) as answer:
        async for _ in answer.content:
            pass


@asynccontextmanager
async def opened(line: Pipeline) -> AsyncIterator[list[ClientSession]]:
    """The gateways."""
    async with AsyncExitStack() as stack:
        parts = await asyncio.gather(*(line.start("gateway") for _ in range(GATEWAYS)))
        yield [await stack.enter_async_context(ClientSession(part.url)) for part in parts]


async def edit(line: Pipeline, doors: list[ClientSession], number: int) -> float:
    """Seconds until all gateways have another alias."""
    edited = line.file.with_suffix(".new")
    edited.write_text(line.file.read_text("utf-8") + f'alias-{number} = "live"\n', "utf-8")
    began = time.perf_counter()
    edited.replace(line.file)
    await asyncio.gather(*(listed(http, "v1/models", f"alias-{number}") for http in doors))
    return time.perf_counter() - began


async def add(line: Pipeline, doors: list[ClientSession], number: int) -> float:
    """Seconds until all gateways have the model of a new processor."""
    file = line.configuration(f"{line.flow}-{number}")
    model, text = f"new-{number}", file.read_text("utf-8")
    file.write_text(text.replace("models.live", f"models.{model}").replace('"live"', f'"{model}"'), "utf-8")
    await line.start("text-completion", "--config", file)
    began = time.perf_counter()
    await asyncio.gather(*(listed(http, "api/v1/models", model) for http in doors))
    return time.perf_counter() - began


async def measure(broker: str, folder: Path, times: int) -> bool:
    """Print the times; whether all streams go on."""
    async with LiveOpenAi.listening() as model, pipeline(model.url, broker, folder) as line:
        line.ready = READY_SECONDS
        text = line.file.read_text("utf-8").replace("[gateway]", "[gateway]\nannounced = true")
        line.file.write_text(f"{text}[gateway.aliases]\n", "utf-8")
        await line.start("text-completion")
        async with opened(line) as doors:
            streams = [asyncio.create_task(ask(http, line.flow)) for http in doors]
            await model.until(lambda: len(model.running) == GATEWAYS, READY_SECONDS)
            for name, change in (("an edit", edit), ("a new processor", add)):
                found = [await change(line, doors, number) for number in range(times)]
                print(f"{name}: median {statistics.median(found):.2f} s, at most {max(found):.2f} s", flush=True)
            whole = len(model.running) == GATEWAYS and not any(stream.done() for stream in streams)
            for stream in streams:
                stream.cancel()
            await asyncio.wait(streams)
            return whole


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    times: int = parser.parse_args().times
    with PulsarServer() as broker, tempfile.TemporaryDirectory(prefix="tokengrid-edits-") as folder:
        sys.exit(not asyncio.run(measure(broker.service_url, Path(folder), times)))


if __name__ == "__main__":
    main()
